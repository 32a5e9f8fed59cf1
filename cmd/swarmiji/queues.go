package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/reach"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

func (a *app) queuesCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "queues [QUEUE...]",
		Short: "Show how many tasks are in queues",
		Long: "Queues prints for each queue how many tasks wait (READY), are held by consumers (HELD), are delayed (DELAYED)\n" +
			"and are dead letters (DEAD), and how long the oldest one has waited (OLDEST). Without names it shows the queues\n" +
			"that the broker knows, those of the consumers that answer or send heartbeats, and \"default\". RabbitMQ cannot\n" +
			"list its queues: there, name the queues of consumers that do not run. It changes nothing. A number that the\n" +
			"broker does not tell is \"?\", and -1 in JSON.\n\n" +
			"Exit status: 3 if a named queue does not exist; the others are printed.",
		Example: "  swarmiji queues\n" +
			"  swarmiji queues reports mail -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := a.keys()
			if err = errors.Join(err, t.check()); err != nil {
				return err
			}
			for _, q := range args {
				if err := task.CheckName(q); err != nil {
					return err
				}
			}
			return a.with(cmd.Context(), open.Options{Control: len(args) == 0}, func(ctx context.Context, s *open.Swarm) error {
				names := args
				if len(names) == 0 {
					c, err := ask(ctx, s, keys, control.Wait{Replies: t.replies, Timeout: t.collect})
					if err != nil && !errors.Is(err, errNobody) && !errors.Is(err, control.ErrMissing) {
						return err
					}
					known, err := broker.Queues(ctx, s.Broker)
					if err != nil && !errors.Is(err, broker.ErrUnsupported) {
						return err
					}
					names = c.names(known...)
					if err != nil && len(c.queues) == 0 {
						a.say("no consumer answers or sends heartbeats, so only the queue %q is looked for; name the others: swarmiji queues QUEUE...", router.DefaultQueue)
					}
				}
				return a.sizes(ctx, s, names, len(args) > 0)
			})
		},
	}
	cmd.Flags().DurationVar(&t.collect, "collect", listenTime, "without names: how long to wait for answers and heartbeats of consumers")
	cmd.Flags().IntVar(&t.replies, "replies", 0, "without names: stop waiting after this many answers; default: wait for --collect")
	return cmd
}

// census holds the answers and heartbeats of consumers.
type census struct {
	replies []control.Reply // to a question for their sizes
	silent  int             // consumers that do not answer, and send heartbeats
	queues  map[string]int  // number of consumers of each queue
	paused  map[string]int  // number of consumers that have paused a queue
}

// names returns the default queue, the queues of the consumers and the known ones, sorted.
func (c *census) names(known ...string) []string {
	names := append(slices.Collect(maps.Keys(c.queues)), router.DefaultQueue)
	names = append(names, known...)
	slices.Sort(names)
	return slices.Compact(names)
}

// ask asks consumers and meanwhile listens for heartbeats, which also come from consumers without
// control. The census is complete even with an error: errNobody, for example, says that none has
// answered.
func ask(ctx context.Context, s *open.Swarm, keys *control.Keys, w control.Wait) (census, error) {
	c := census{queues: make(map[string]int), paused: make(map[string]int)}
	listening, enough := context.WithCancel(ctx)
	defer enough()
	heard, err := hear(listening, s.Events)
	if err != nil {
		return c, err
	}
	c.replies, err = send(ctx, s, keys, control.Command{Do: control.DoStats}, w)
	enough()
	nodes, herr := heard()
	for i := range c.replies {
		note(nodes, &c.replies[i])
		if s := c.replies[i].Stats; s != nil {
			for _, q := range s.Queues {
				c.paused[q.Name] += btoi(q.Paused)
			}
		}
	}
	for _, n := range nodes {
		if n.Offline || n.Role != events.RoleConsumer {
			continue
		}
		if !n.Answers {
			c.silent++
		}
		for _, q := range n.Queues {
			c.queues[q]++
		}
	}
	return c, errors.Join(err, herr)
}

// queueOutput is the output for a queue.
type queueOutput struct {
	Queue   string `json:"queue"`
	Ready   int    `json:"ready"`
	Held    int    `json:"held"`
	Delayed int    `json:"delayed"`
	Dead    int    `json:"dead"`
	// since when the oldest ready task waits; missing: none does, or the broker does not tell
	Oldest *time.Time `json:"oldest,omitempty"`
}

// sizes prints queues. It returns an error if a queue that the user named does not exist.
func (a *app) sizes(ctx context.Context, s *open.Swarm, names []string, must bool) error {
	i, ok := capability.As[broker.Inspector](s.Broker)
	if !ok {
		return fmt.Errorf("this broker does not tell what waits: %w", broker.ErrUnsupported)
	}
	out := []queueOutput{}
	t := &table{head: []string{"QUEUE", "READY", "HELD", "DELAYED", "DEAD", "OLDEST"}}
	var missing []error
	for _, q := range names {
		st, err := i.Stats(ctx, q)
		switch {
		case errors.Is(err, broker.ErrNoQueue):
			missing = append(missing, reach.Also(fmt.Errorf("queue %s: %w", q, errNotFound), broker.ErrNoQueue))
			continue
		case err != nil:
			return err
		}
		one := queueOutput{Queue: q, Ready: st.Ready, Held: st.Held, Delayed: st.Delayed, Dead: st.Dead}
		if !st.Oldest.IsZero() {
			one.Oldest = &st.Oldest
		}
		out = append(out, one)
		t.add(q, told(st.Ready), told(st.Held), told(st.Delayed), told(st.Dead), age(st))
	}
	err := a.show(out, t)
	if must {
		err = errors.Join(append(missing, err)...)
	}
	return err
}

// age formats the age of the oldest ready task for people.
func age(st broker.Stats) string {
	switch {
	case !st.Oldest.IsZero():
		return max(0, time.Since(st.Oldest)).Truncate(time.Second).String()
	case st.Ready > 0:
		return "?"
	}
	return ""
}

// told formats a number of a queue for people.
func told(n int) string {
	if n < 0 {
		return "?"
	}
	return strconv.Itoa(n)
}
