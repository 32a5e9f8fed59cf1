package history

import (
	"bytes"
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

// TestStoredText compares the text of random facts with that of json.Marshal, which earlier
// versions stored.
func TestStoredText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entry := rapid.Make[storedEntry]()
		texts := rapid.SliceOfN(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", `"<&>\`, "plain", "\xff", "\u2028 x"})), 0, 3)
		var want storedFacts
		f := Facts{ID: "a"}
		want.ID = f.ID
		for range rapid.IntRange(0, 3).Draw(t, "entries") {
			e := entry.Draw(t, "entry")
			e.Kind = rapid.IntRange(0, len(kinds())-1).Draw(t, "kind")
			e.Time, e.Due = e.Time%(1<<40), e.Due%(1<<40)
			read, err := e.entry()
			if err != nil {
				t.Fatal(err)
			}
			f.entries = append(f.entries, read)
			want.Entries = append(want.Entries, e)
		}
		for kind := range f.facts {
			if rapid.Bool().Draw(t, "told") {
				var at Entry
				if len(f.entries) > 0 {
					at = f.entries[0]
				}
				f.facts[kind] = &fact{at: at, text: texts.Draw(t, "texts")}
				want.Facts = append(want.Facts, storedFact{Kind: kind, At: f.facts[kind].at.stored(), Text: f.facts[kind].text})
			}
		}
		for i := range want.Entries {
			want.Entries[i] = f.entries[i].stored() // times are cut to milliseconds
		}
		text, err := json.Marshal(&want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.MarshalJSON()
		if err != nil || !bytes.Equal(got, text) {
			t.Fatalf("%s, want %s; error %v", got, text, err)
		}
	})
}
