package hworkerbroker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// delivery is a job in progress. What proves that it is still ours is its start time: the payload is also that of a later
// worker's note, once a monitor has taken the job back.
type delivery struct {
	sub     *subscription
	payload string
	message *broker.Message
	number  uint64        // of all that the Broker took
	lost    chan struct{} // closed when it is not ours any more

	turn chan struct{} // held by whoever settles or renews; a channel, so that a ctx can end the waiting
	// The rest is guarded by turn.
	state  error     // nil while it is held; then what a settlement is told
	handed bool      // somebody has received it
	starts []string  // the start times that the note may have: more than one after a renewal without an answer
	first  time.Time // when the first of them was noted, by this process's clock
	proof  time.Time // when it last was ours for certain, by this process's clock
}

// newDelivery makes one of a payload that was taken after the given moment, with the start time that was noted.
func newDelivery(s *subscription, payload, start string, before time.Time) *delivery {
	return &delivery{
		sub: s, payload: payload, starts: []string{start}, first: before, proof: before,
		lost: make(chan struct{}), turn: make(chan struct{}, 1),
	}
}

// Message implements [broker.Delivery].
func (d *delivery) Message() *broker.Message { return d.message }

// Deliveries implements [broker.Delivery]. Nothing counts on four keys: it is always (1, false).
func (d *delivery) Deliveries() (int, bool) { return 1, false }

// Lost implements [broker.Delivery]. It is closed when a monitor has taken the job back, or when that is to be feared
// because the server cannot be asked.
func (d *delivery) Lost() <-chan struct{} { return d.lost }

// Ack implements [broker.Delivery]: hworker's Success.
func (d *delivery) Ack(ctx context.Context) error { return d.settle(ctx, "done", "", "") }

// AckSync implements [broker.SyncAcker]. Ack has the server's answer too.
func (d *delivery) AckSync(ctx context.Context) error { return d.Ack(ctx) }

// Release implements [broker.Delivery]. The job goes to the front, as one that was not run; what failed and is to run again
// goes to the back, see [Broker.Retry]. There is nothing that could hold it back for a time.
func (d *delivery) Release(ctx context.Context, after time.Duration) error {
	if after > 0 {
		if err := d.settleable(ctx); err != nil {
			return err
		}
		return fmt.Errorf("hworker release: a list has no times, so that nothing can wait for %v: %w", after, broker.ErrUnsupported)
	}
	err := d.settle(ctx, "front", d.sub.keys.jobs, "")
	if err == nil {
		d.sub.broker.wake(d.sub.keys.queue)
	}
	return err
}

// Bury implements [broker.Delivery]: hworker's Failure, and for what is Unreadable its way to the
// broken ones. The layout keeps no reasons, so that the reason is only logged.
func (d *delivery) Bury(ctx context.Context, dead broker.Dead) error {
	b := d.sub.broker
	how, key, size := b.grave(d.sub.keys, dead)
	err := d.settle(ctx, how, key, size)
	if err == nil {
		b.logFailure(d.sub.keys.queue, d.message.ID, dead)
	}
	return err
}

// settle ends the job in one of the ways of settle.lua.
func (d *delivery) settle(ctx context.Context, how, key, value string) error {
	if err := d.begin(ctx); err != nil {
		return err
	}
	defer d.pass()
	return d.end(ctx, how, key, value, broker.ErrSettled)
}

// takeBack gives the job back to the queue for the Broker itself, when it or a subscription closes.
func (d *delivery) takeBack(ctx context.Context) error {
	if err := d.begin(ctx); err != nil {
		return err
	}
	defer d.pass()
	if err := d.end(ctx, "front", d.sub.keys.jobs, "", broker.ErrLeaseLost); !broker.Gone(err) {
		return err
	}
	return nil
}

// end ends the job; then tells what later settlements are told. An error that does not say whose the job is leaves it as it
// was. The caller has the turn.
func (d *delivery) end(ctx context.Context, how, key, value string, then error) error {
	if d.state != nil {
		return d.state
	}
	if key == "" {
		key = d.sub.keys.jobs // which is not touched
	}
	b := d.sub.broker
	n, err := b.number(ctx, how, b.scripts.settle, []string{d.sub.keys.progress, key}, d.args(how, value)...)
	switch {
	case err != nil:
		return err
	case n != 1:
		if what := ends[how]; what != "" {
			b.log(slog.LevelWarn, d.sub.keys.queue, what+": the job was in progress no more, and nothing was done", slog.String("task_id", d.id()))
		}
		d.leave(broker.ErrLeaseLost)
		return d.state
	}
	d.leave(then)
	return nil
}

// ends are hworker's words for the ends of a job.
var ends = map[string]string{"done": "Success", "replace": "Retry", "failed": "Failure", "broken": "Broken"}

// id is that of the message; "" if the payload is none.
func (d *delivery) id() string {
	if d.message == nil {
		return ""
	}
	return d.message.ID
}

// args are those of a script about this job: the payload, what the script wants to know, and the start times.
func (d *delivery) args(more ...string) []any {
	args := []any{d.payload}
	for _, a := range slices.Concat(more, d.starts) {
		args = append(args, a)
	}
	return args
}

// settleable returns what a settlement would be told before anything is tried.
func (d *delivery) settleable(ctx context.Context) error {
	if err := d.begin(ctx); err != nil {
		return err
	}
	defer d.pass()
	return d.state
}

// begin waits for the turn.
func (d *delivery) begin(ctx context.Context) error {
	select {
	case d.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("hworker: another settlement is under way: %w: %w", broker.ErrUnavailable, ctx.Err())
	}
}

// pass ends the turn.
func (d *delivery) pass() { <-d.turn }

// leave ends the delivery, with what later settlements are told, and makes room for another one.
func (d *delivery) leave(why error) {
	d.state = fmt.Errorf("hworker: a job of %q: %w", d.sub.keys.queue, why)
	if !errors.Is(why, broker.ErrSettled) {
		close(d.lost)
	}
	if d.sub.broker.drop(d) {
		d.sub.add(-1)
	}
}

// abandon ends a delivery of a closed Broker that could not be given back.
func (d *delivery) abandon() {
	d.turn <- struct{}{}
	defer d.pass()
	if d.state == nil {
		d.leave(broker.ErrLeaseLost)
	}
}

// handOut begins the time of a job that has waited in this process for somebody to receive it. It
// reports whether the job is still ours. Where the server does not answer soon the time stays.
func (d *delivery) handOut(ctx context.Context) bool {
	d.turn <- struct{}{}
	defer d.pass()
	d.handed = true
	b := d.sub.broker
	if d.state == nil && time.Since(d.first) > b.tick() {
		soon, cancel := context.WithTimeout(ctx, max(b.tick(), minTimeout))
		defer cancel()
		d.renew(soon, time.Now())
	}
	return d.state == nil
}

// keep renews the start time, or looks whether somebody has the job who does not know of ours. What
// waits here for a worker is renewed with or without a heartbeat: its work has not begun.
func (d *delivery) keep(ctx context.Context) {
	select {
	case d.turn <- struct{}{}:
		defer d.pass()
	default:
		return // it is being settled
	}
	b, now := d.sub.broker, time.Now()
	renews := b.cfg.Heartbeat || !d.handed
	switch {
	case d.state != nil, renews && now.Sub(d.proof) < b.cfg.Timeout/3, !renews && now.Sub(d.first) < b.cfg.Timeout:
	case renews:
		d.renew(ctx, now)
	default:
		d.hold(ctx, "", now)
	}
}

// renew gives the note a new start time. The caller has the turn.
func (d *delivery) renew(ctx context.Context, now time.Time) {
	start := parseStamp(d.starts[0]).Add(now.Sub(d.first)).Format(stampLayout)
	d.starts = append(d.starts, start) // before it is sent, since the answer may be lost
	d.hold(ctx, start, now)
}

// hold looks whether the job is still ours, and gives the note its new start time unless that is
// "". The caller has the turn.
func (d *delivery) hold(ctx context.Context, start string, now time.Time) {
	b := d.sub.broker
	n, err := b.number(ctx, "keep", b.scripts.hold, []string{d.sub.keys.progress}, d.args(start)...)
	switch {
	case err == nil && n == 1:
		d.proof = now
		if start != "" {
			d.starts, d.first = []string{start}, now
		}
	case err == nil, time.Since(d.proof) > b.cfg.Timeout-b.tick(): // a monitor may have it, and we cannot see that
		d.leave(broker.ErrLeaseLost)
	}
}
