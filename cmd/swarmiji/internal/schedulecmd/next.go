package schedulecmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/when"
)

// whenOptions holds the flags that replace a phrase.
type whenOptions struct {
	cron, cron5, repeat, zone string
}

func (o *whenOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.cron, "cron", "", "seven `fields` instead of a phrase: year month day weekday hour minute second, in UTC")
	f.StringVar(&o.cron5, "cron5", "", "five `fields` of crontab instead of a phrase, or @daily and the like")
	f.StringVar(&o.repeat, "repeat", "", "a `rule` instead of a phrase, such as \"FINISHED, +1 DAY\"")
	f.StringVar(&o.zone, "zone", "UTC", "`name` of the time zone of a phrase and of --cron5, such as Europe/Berlin")
}

// given returns the number of flags that replace a phrase.
func (o *whenOptions) given() (n int) {
	for _, text := range []string{o.cron, o.cron5, o.repeat} {
		if text != "" {
			n++
		}
	}
	return n
}

// location returns the zone of --zone.
func (o *whenOptions) location() (*time.Location, error) { return cli.Zone(o.zone) }

// understand parses a phrase, or the flags that replace it, relative to now. For the flag of a spec
// the Phrase has the spec only.
func (o *whenOptions) understand(phrase string, now time.Time) (p when.Phrase, err error) {
	if n := o.given(); n > 1 || (n == 1) == (phrase != "") {
		return p, fmt.Errorf("%w: give a phrase, as \"every weekday at 9am\", or one of --cron, --cron5 and --repeat", cli.ErrUsage)
	}
	loc, err := o.location()
	switch {
	case err != nil:
	case o.cron != "":
		p.Spec, err = spec(when.ParseCron(o.cron))
	case o.cron5 != "":
		p.Spec, err = spec(when.ParseCron5(o.cron5, loc))
	case o.repeat != "":
		p.Spec, err = spec(when.ParseRepeat(o.repeat))
	default:
		if d, ok := cli.Span(phrase); ok {
			p.Once = true
			if p.Spec, err = spec(when.Once(now.Add(d))); err == nil {
				p.At, _ = p.Spec.Next(now.Add(d - time.Second)) // rounded up to the whole second
			}
			break
		}
		p, err = when.ParsePhrase(phrase, now.In(loc))
	}
	return p, err
}

// when returns the time for the store. The store reads a phrase by its own clock; p has the spec of
// a flag.
func (o *whenOptions) when(phrase string, p *when.Phrase) schedule.When {
	if d, ok := cli.Span(phrase); ok {
		return schedule.After(d)
	}
	if phrase != "" {
		return schedule.ByPhrase(phrase)
	}
	return schedule.BySpec(p.Spec)
}

// spec returns a nil Spec for a nil pointer.
func spec[S when.Spec](s S, err error) (when.Spec, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// nextOptions holds the flags of schedule next.
type nextOptions struct {
	when                                whenOptions
	after, scheduled, started, finished string
	count                               int
}

func (a *app) scheduleNextCmd() *cobra.Command {
	var o nextOptions
	cmd := &cobra.Command{
		Use:   "next PHRASE",
		Short: "Show the run times of a phrase, of cron fields or of a rule",
		Long: "Next prints run times in UTC, one per line in the form of RFC 3339. It asks no server and changes nothing, so\n" +
			"use it to check a phrase before swarmiji schedule add.\n\n" +
			"A phrase with \"in\" or \"at\" has one run; \"in 90s\" and \"in 1h30m\" work too. A phrase with \"every\", --cron and\n" +
			"--cron5 have up to --count runs after --after, or none if they never run, as on 30 February; a line on the\n" +
			"standard error says so. A phrase counts from --after, and may end with a zone: \"every weekday at 9am Europe/Berlin\".\n\n" +
			"--repeat needs --scheduled, --started and --finished, the times of the last run, and has one run, which may\n" +
			"lie before --after. With -o json the command prints a list. Exit status: 2 if the times are not understood.",
		Example: "  swarmiji schedule next \"every weekday at 9am\"\n" +
			"  swarmiji schedule next --repeat \"FINISHED, +1 DAY\" --scheduled 2026-11-21T19:00:00Z \\\n" +
			"    --started 2026-11-21T19:00:01Z --finished 2026-11-21T19:05:00Z",
		Annotations: map[string]string{cli.Offline: "yes"},
		RunE:        func(_ *cobra.Command, args []string) error { return a.scheduleNext(strings.Join(args, " "), &o) },
	}
	o.when.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.after, "after", "", "`time` in RFC 3339 after which runs are shown; default: now")
	f.IntVarP(&o.count, "count", "n", 5, "maximum number of runs, 1 to 10000")
	f.StringVar(&o.scheduled, "scheduled", "", "with --repeat: `time` at which the last run was due")
	f.StringVar(&o.started, "started", "", "with --repeat: `time` at which the last run started")
	f.StringVar(&o.finished, "finished", "", "with --repeat: `time` at which the last run ended")
	return cmd
}

// maxNext limits the runs in the output.
const maxNext = 10000

func (a *app) scheduleNext(phrase string, o *nextOptions) error {
	if o.count < 1 || o.count > maxNext {
		return fmt.Errorf("%w: -n is %d, want 1 to %d", cli.ErrUsage, o.count, maxNext)
	}
	now := time.Now()
	if err := instant("after", o.after, &now); err != nil {
		return err
	}
	p, err := o.when.understand(phrase, now)
	if err != nil {
		return err
	}
	times, err := o.times(&p, now)
	if err != nil {
		return err
	}
	if len(times) == 0 {
		a.Say("there is no run after %s; correct the day or the year", now.UTC().Format(time.RFC3339))
	}
	return a.showTimes(times)
}

// times holds the instants of the output. It is never nil, so that JSON shows an empty list.
func (o *nextOptions) times(p *when.Phrase, now time.Time) ([]time.Time, error) {
	if r, ok := p.Spec.(*when.Repeat); ok {
		var of [3]time.Time
		for i, flag := range []struct{ name, text string }{{"scheduled", o.scheduled}, {"started", o.started}, {"finished", o.finished}} {
			if flag.text == "" {
				return nil, fmt.Errorf("%w: --repeat counts from the last run: give --scheduled, --started and --finished", cli.ErrUsage)
			}
			if err := instant(flag.name, flag.text, &of[i]); err != nil {
				return nil, err
			}
		}
		next, err := r.After(of[0], of[1], of[2])
		return []time.Time{next}, err
	}
	if o.scheduled+o.started+o.finished != "" {
		return nil, fmt.Errorf("%w: --scheduled, --started and --finished belong to --repeat", cli.ErrUsage)
	}
	if p.Once {
		return []time.Time{p.At}, nil
	}
	times := []time.Time{}
	for t, ok := p.Spec.Next(now); ok && len(times) < o.count; t, ok = p.Spec.Next(t) {
		times = append(times, t)
	}
	return times, nil
}

// instant parses the time of a flag into t, if the flag is set.
func instant(flag, text string, t *time.Time) error {
	if text == "" {
		return nil
	}
	got, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return fmt.Errorf("%w: --%s is no time in RFC 3339, such as 2026-11-21T19:00:00Z", cli.ErrUsage, flag)
	}
	*t = got
	return nil
}

// showTimes prints instants in UTC, one on a line or as a JSON list.
func (a *app) showTimes(times []time.Time) error {
	texts := make([]string, len(times))
	for i, t := range times {
		texts[i] = t.UTC().Format(time.RFC3339)
	}
	if a.Output == "json" {
		return a.JSON(texts)
	}
	for _, text := range texts {
		if _, err := fmt.Fprintln(a.Stdout, text); err != nil {
			return err
		}
	}
	return nil
}
