package deadcmd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
)

// some returns the filter of the flags, or an error if no flag selects letters.
func (d *deadFilter) some(queue string) (selection, error) {
	f, some, err := d.of(queue)
	if err == nil && !some {
		err = fmt.Errorf("%w: no letters are selected; give --all, or --id, --task, --root, --error, --header, --older-than, --younger-than or --limit", cli.ErrUsage)
	}
	return f, err
}

// bulkFlags are the flags of commands that change many dead letters.
type bulkFlags struct{ dryRun, yes bool }

// flags adds the flags to cmd. confirm is the text of --yes.
func (b *bulkFlags) flags(cmd *cobra.Command, confirm string) {
	cmd.Flags().BoolVar(&b.dryRun, "dry-run", false, "only count the letters, by name and by reason")
	cmd.Flags().BoolVar(&b.yes, "yes", false, confirm)
}

// unconfirmed is the number of letters that a command changes without --yes.
const unconfirmed = 100

// allow returns an error if more than unconfirmed letters match f and --yes is missing.
func (b *bulkFlags) allow(ctx context.Context, api inspect.API, f *selection) error {
	if b.yes || f.limit > 0 && f.limit <= unconfirmed {
		return nil
	}
	s, err := api.SummarizeDead(ctx, inspect.DeadCount{DeadFilter: f.DeadFilter, Limit: unconfirmed})
	if err == nil && s.More {
		err = fmt.Errorf("%w: more than %d letters match; --dry-run counts them, and --yes or a --limit of at most %d changes them", cli.ErrUsage, unconfirmed, unconfirmed)
	}
	return err
}

// summaryOutput is the output of --dry-run.
type summaryOutput struct {
	Queue   string         `json:"queue"`
	DryRun  bool           `json:"dry_run"` // true
	Letters int            `json:"letters"`
	More    bool           `json:"more"` // further letters match, beyond --limit or inspect.MaxCount
	Bytes   int64          `json:"bytes"`
	Oldest  *time.Time     `json:"oldest,omitempty"`
	Newest  *time.Time     `json:"newest,omitempty"`
	Tasks   map[string]int `json:"tasks"`
	Reasons map[string]int `json:"reasons"`
}

// summary prints what matches f and changes nothing.
func (a *app) summary(ctx context.Context, api inspect.API, f *selection) error {
	s, err := api.SummarizeDead(ctx, inspect.DeadCount{DeadFilter: f.DeadFilter, Limit: min(f.limit, inspect.MaxCount)})
	if err == nil {
		err = noneOf(f, s.N)
	}
	if err != nil {
		return err
	}
	a.SayDryRun()
	out := summaryOutput{Queue: f.Queue, DryRun: true, Letters: s.N, More: s.More, Bytes: s.Bytes, Tasks: s.Names, Reasons: s.Reasons}
	t := &cli.Table{Head: []string{"COUNT", "KIND", "VALUE"}}
	t.Add(s.N, "letters", f.Queue)
	if !s.Oldest.IsZero() {
		out.Oldest, out.Newest = &s.Oldest, &s.Newest
		t.Add("", "oldest", s.Oldest)
		t.Add("", "newest", s.Newest)
	}
	for _, name := range byCount(s.Names) {
		t.Add(s.Names[name], "task", cmp.Or(name, "(cannot be read)"))
	}
	for _, reason := range byCount(s.Reasons) {
		t.Add(s.Reasons[reason], "reason", reason)
	}
	switch {
	case s.More && f.limit > 0 && f.limit <= inspect.MaxCount:
		a.Say("further letters match; --limit ends the count")
	case s.More:
		a.Say("further letters match; a count ends at %d", inspect.MaxCount)
	}
	return a.Show(out, t)
}

// byCount returns the names, the largest count first.
func byCount(counts map[string]int) []string {
	return slices.SortedFunc(maps.Keys(counts), func(x, y string) int {
		return cmp.Or(cmp.Compare(counts[y], counts[x]), cmp.Compare(x, y))
	})
}
