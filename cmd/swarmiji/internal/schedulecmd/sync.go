package schedulecmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
)

// syncOptions holds the flags of schedule sync.
type syncOptions struct {
	group    string
	revision int64
	dryRun   bool
}

func (a *app) scheduleSyncCmd(store *storeOptions) *cobra.Command {
	var o syncOptions
	cmd := &cobra.Command{
		Use:   "sync FILE|-",
		Short: "Make the entries of a file the entries of a group",
		Long: "Sync reads entries from FILE, or with \"-\" from the standard input. It adds new ones to the group, changes those\n" +
			"with another content, and removes the group's other entries. A changed entry keeps its state, last runs and\n" +
			"pause. Entries of other groups and of none are not touched.\n\n" +
			"The file has one JSON object for each entry, such as\n\n" +
			"  {\"name\": \"nightly\", \"when\": \"every day at 2am\", \"task\": \"report.make\", \"args\": [1]}\n" +
			"  {\"name\": \"hourly\", \"cron5\": \"0 * * * *\", \"task\": \"cache.clear\", \"misfire\": \"skip\"}\n\n" +
			"name and task are needed, and when, a phrase, or one of cron, cron5 and repeat. args, zone, misfire and nonce are\n" +
			"those of swarmiji schedule add.\n\n" +
			"A lower --revision than that of the last sync of the group changes nothing, and a line on the standard error\n" +
			"says so; the exit status is 0. So deployments of old and new versions may run in any order. The command prints\n" +
			"a line for each entry: added, changed, unchanged, removed, or over if it never runs again. --dry-run prints the\n" +
			"same lines and changes nothing.\n\n" +
			"Exit status: 2 if the file is wrong, 1 if an entry with one of the names is in another group or in none;\n" +
			"nothing has changed then.",
		Example: "  swarmiji schedule sync schedule.jsonl --group reports --revision 42 --dry-run\n" +
			"  generate-entries | swarmiji schedule sync - --group reports --revision 43 -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.group == "" || !cmd.Flags().Changed("revision") {
				return fmt.Errorf("%w: --group and --revision are needed", cli.ErrUsage)
			}
			return a.scheduleSync(cmd.Context(), store, args[0], &o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.group, "group", "", "`name` of the group")
	f.Int64Var(&o.revision, "revision", 0, "`version` of the file, a number such as that of the build")
	f.BoolVar(&o.dryRun, "dry-run", false, "only print what would change")
	return cmd
}

// syncOutput is the output of schedule sync.
type syncOutput struct {
	Group    string        `json:"group"`
	Revision int64         `json:"revision"`
	Outdated bool          `json:"outdated"`
	DryRun   bool          `json:"dry_run,omitempty"`
	Entries  []syncedEntry `json:"entries"`
}

type syncedEntry struct {
	Name    string           `json:"name"`
	ID      string           `json:"id"`
	Outcome schedule.Outcome `json:"outcome"`
	Next    time.Time        `json:"next,omitzero"`
	Echo    string           `json:"echo,omitempty"`
}

func (a *app) scheduleSync(ctx context.Context, store *storeOptions, file string, o *syncOptions) error {
	want, err := a.definitions(file)
	if err != nil {
		return err
	}
	return a.withSchedule(ctx, store, !o.dryRun, nil, func(ctx context.Context, s *schedule.Schedule) error {
		synced, err := s.Sync(ctx, o.group, o.revision, want, schedule.SyncOptions{DryRun: o.dryRun})
		a.auditSync(ctx, o, &synced, err)
		if err != nil {
			return err
		}
		out := syncOutput{Group: o.group, Revision: synced.Revision, Outdated: synced.Outdated, DryRun: o.dryRun, Entries: []syncedEntry{}}
		t := &cli.Table{Head: []string{"NAME", "OUTCOME", "NEXT", "WHEN"}}
		for i := range synced.Entries {
			e := &synced.Entries[i]
			one := syncedEntry{Name: e.Name, ID: e.ID, Outcome: e.Outcome, Echo: e.Echo}
			if !e.Next.IsZero() {
				one.Next = e.Next.UTC()
			}
			out.Entries = append(out.Entries, one)
			t.Add(cmp.Or(e.Name, e.ID), string(e.Outcome), one.Next, e.Echo)
		}
		switch {
		case synced.Outdated:
			a.Say("group %s has revision %d, which is higher than %d: nothing was changed", cli.Visible(o.group), synced.Revision, o.revision)
		case o.dryRun:
			a.SayDryRun()
		}
		return a.Show(out, t)
	})
}

// auditSync reports the number of changed entries, and of each outcome, to the audit log.
func (a *app) auditSync(ctx context.Context, o *syncOptions, synced *schedule.Synced, failure error) {
	c, outcomes := inspect.Change{Do: inspect.DoSyncSchedule, Target: o.group, DryRun: o.dryRun}, make(map[schedule.Outcome]int)
	for i := range synced.Entries {
		is := synced.Entries[i].Outcome
		if outcomes[is]++; is != schedule.EntryUnchanged {
			c.Done++
		}
	}
	a.Audit(ctx, c, map[string]any{"revision": o.revision, "outdated": synced.Outdated, "entries": outcomes}, failure)
}

// definitionInput is one entry of a file.
type definitionInput struct {
	Name    string          `json:"name"`
	When    string          `json:"when"`
	Cron    string          `json:"cron"`
	Cron5   string          `json:"cron5"`
	Repeat  string          `json:"repeat"`
	Zone    string          `json:"zone"`
	Task    string          `json:"task"`
	Args    json.RawMessage `json:"args"`
	Misfire string          `json:"misfire"`
	Nonce   string          `json:"nonce"`
}

// definitions reads the entries of a file; "-" is the standard input.
func (a *app) definitions(file string) ([]schedule.Definition, error) {
	in := a.Stdin
	if file != "-" {
		from, err := os.Open(file) //nolint:gosec // the user names a file of their own
		if err != nil {
			return nil, fmt.Errorf("%w: %w", cli.ErrUsage, err)
		}
		defer func() { _ = from.Close() }()
		in = from
	}
	var all []schedule.Definition
	d := json.NewDecoder(in)
	d.DisallowUnknownFields()
	for {
		var one definitionInput
		err := d.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		var made schedule.Definition
		var wrong *json.UnmarshalTypeError
		switch {
		case err == nil:
			made, err = one.definition(time.Now())
		case errors.As(err, &wrong) && wrong.Field == "":
			err = fmt.Errorf("the file has a JSON %s, not JSON objects one after the other", wrong.Value)
		case errors.As(err, &wrong):
			err = fmt.Errorf("the value of %s is a JSON %s", wrong.Field, wrong.Value)
		default:
			err = fmt.Errorf("the file does not have JSON objects one after the other: %w", err)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: entry %d, %s: %w", cli.ErrUsage, len(all)+1, cmp.Or(cli.Visible(one.Name), "without a name"), err)
		}
		all = append(all, made)
	}
}

// definition returns the definition of an entry, whose times it checks relative to now.
func (d *definitionInput) definition(now time.Time) (schedule.Definition, error) {
	made := schedule.Definition{Name: d.Name}
	if d.Name == "" || d.Task == "" {
		return made, errors.New("name and task are needed")
	}
	phrase := d.When
	o := whenOptions{cron: d.Cron, cron5: d.Cron5, repeat: d.Repeat, zone: cmp.Or(d.Zone, "UTC")}
	p, err := o.understand(phrase, now)
	if err != nil {
		return made, err
	}
	if phrase != "" && d.Zone != "" {
		phrase += " " + d.Zone // Sync reads phrases in one zone
		if _, err = o.understand(phrase, now); err != nil {
			return made, fmt.Errorf("%w; write the zone only once", err)
		}
	}
	policy, err := misfire(cmp.Or(d.Misfire, "once"))
	if err != nil {
		return made, err
	}
	arguments := json.RawMessage("null")
	if len(d.Args) > 0 {
		arguments = d.Args
	}
	made.At, made.Call = o.when(phrase, &p), task.New[any, any](d.Task).Call(arguments)
	made.Options = []schedule.Option{schedule.WithMisfire(policy), schedule.WithNonce(d.Nonce)}
	return made, nil
}
