package main

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/settings"
)

// TestKeyLimitFlags shows the change of the bounds for the flags of queue limit.
func TestKeyLimitFlags(t *testing.T) {
	three, none := settings.Bound{Max: 3, Rate: "5/s"}, settings.Bound{}
	for _, c := range []struct {
		args  []string
		bound settings.Bound
		want  *settings.Bounds
		bad   bool
	}{
		{args: nil, bound: three, want: nil},
		{args: []string{"--each-key"}, bound: three, want: &settings.Bounds{Key: &three}},
		{args: []string{"--each-key"}, want: &settings.Bounds{Key: &none}},
		{args: []string{"--key", ""}, bound: three, want: &settings.Bounds{Keys: map[string]settings.Bound{"": three}}},
		{args: []string{"--configured-keys"}, want: &settings.Bounds{}},
		{args: []string{"--configured-keys"}, bound: three, bad: true},
		{args: []string{"--each-key", "--key", "a"}, bound: three, bad: true},
	} {
		var k keyLimit
		cmd := &cobra.Command{}
		k.flags(cmd)
		if err := cmd.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		b, _, err := k.bounds(cmd, c.bound.Rate, c.bound.Max)
		switch {
		case c.bad != (err != nil), (b == nil) != (c.want == nil):
			t.Errorf("%v: %+v, %v", c.args, b, err)
		case b != nil && boundsText(b) != boundsText(c.want):
			t.Errorf("%v: %q, want %q", c.args, boundsText(b), boundsText(c.want))
		}
	}
	for text, b := range map[string]*settings.Bounds{
		"": nil, "each 3 at once, 5/s; 1 single": {Key: &three, Keys: map[string]settings.Bound{"a": three}}, "each without a limit": {Key: &none},
	} {
		if got := boundsText(b); got != text {
			t.Errorf("%+v: %q, want %q", b, got, text)
		}
	}
}
