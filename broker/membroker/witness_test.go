package membroker_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
)

// TestNotesEnd shows that the notes of a message are kept for 24 h after the last one, and no
// longer.
func TestNotesEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New()
		defer func() { _ = b.Close(t.Context()) }()
		if err := b.Declare(t.Context(), broker.Queue{Name: "q"}); err != nil {
			t.Fatal(err)
		}
		n := 0
		earlier := func(id string) int {
			t.Helper()
			n++
			got, err := b.NoteStart(t.Context(), "q", broker.Start{ID: id, Nonce: fmt.Sprint(n), Node: "node", At: time.Now()})
			if err != nil {
				t.Fatalf("NoteStart: %v", err)
			}
			return len(got)
		}
		earlier("a")
		earlier("b")
		time.Sleep(23 * time.Hour)
		if got := earlier("a"); got != 1 {
			t.Errorf("after 23 h there are %d notes, want 1", got)
		}
		time.Sleep(23 * time.Hour)
		if got := earlier("b"); got != 0 {
			t.Errorf("after 46 h there are %d notes of b, want none", got)
		}
		if got := earlier("a"); got != 2 {
			t.Errorf("23 h after the last one there are %d notes of a, want 2", got)
		}
		time.Sleep(25 * time.Hour)
		if got := earlier("a"); got != 0 {
			t.Errorf("25 h after the last one there are %d notes of a, want none", got)
		}
	})
}
