package amqpbroker

import "testing"

func TestIDTime(t *testing.T) {
	const id, want = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f", 1645557742 // the example of RFC 9562
	if got := idTime(id); got != want {
		t.Errorf("idTime(%s) = %d, want %d", id, got, want)
	}
	for _, id := range []string{"", "a", "919108f7-52d1-4320-9bac-f847db4148a8", "0190a5b0-0000-7000-8000-00000000000", "0190A5B0-0000-7000-8000-000000000000", "0190a5b0-00g0-7000-8000-000000000000"} {
		if got := idTime(id); got != 0 {
			t.Errorf("idTime(%q) = %d", id, got)
		}
	}
}
