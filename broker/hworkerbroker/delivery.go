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

// delivery is a job in progress. Its start time proves that this process holds it. The payload
// alone does not: after a monitor has returned the job to the queue, the next worker notes the same
// payload.
type delivery struct {
	sub     *subscription
	payload string
	message *broker.Message
	number  uint64        // its number among all deliveries of the Broker
	lost    chan struct{} // closed when this process no longer holds the job

	// mu is held during a settlement or renewal, and guards the following fields. It is a channel, so
	// that a ctx can end the wait for it.
	mu        chan struct{}
	state     error     // nil while the job is held, then the error of later settlements
	received  bool      // Receive has returned it
	starts    []string  // start times that may be noted; several after a lost answer
	startedAt time.Time // when the first of starts was noted, on this process's clock
	provenAt  time.Time // when this process last held the job for certain, on its clock
}

// newDelivery returns the delivery of a claimed payload. start is the start time that the server
// has noted, in its stored form. before is a time before the claim, on this process's clock. The
// result has no message yet and is not among the held ones.
func newDelivery(s *subscription, payload, start string, before time.Time) *delivery {
	return &delivery{
		sub: s, payload: payload, starts: []string{start}, startedAt: before, provenAt: before,
		lost: make(chan struct{}), mu: make(chan struct{}, 1),
	}
}

// Message implements [broker.Delivery]. It returns the same pointer each time.
func (d *delivery) Message() *broker.Message { return d.message }

// Deliveries implements [broker.Delivery]. The four keys hold no counter, so it is always (1,
// false).
func (d *delivery) Deliveries() (int, bool) { return 1, false }

// Lost implements [broker.Delivery]. The channel is closed when a monitor has returned the job to
// the queue, or may have done so: the server could not be reached for long.
func (d *delivery) Lost() <-chan struct{} { return d.lost }

// Ack implements [broker.Delivery]. It is hworker's Success: it removes the job, and waits for the
// server. Returns ErrSettled or ErrLeaseLost if the job is no longer held. After any other error it
// may be called again. It takes d.mu, for which it waits until ctx ends.
func (d *delivery) Ack(ctx context.Context) error { return d.settle(ctx, "done", "", "") }

// AckSync implements [broker.SyncAcker]. It removes the job like Ack, which already waits for the
// server, and returns the same errors.
func (d *delivery) AckSync(ctx context.Context) error { return d.Ack(ctx) }

// Release implements [broker.Delivery]. The job goes to the front of the queue, as one that was not
// run, and subscriptions of this process are woken. A failed job that runs again goes to the back,
// see [Broker.Retry]. It waits for the server. It takes d.mu.
//
// Returns ErrSettled or ErrLeaseLost if the job is no longer held. A delay is ErrUnsupported,
// because a list cannot delay a job; the job stays held then. After any other error of the server
// it may be called again.
func (d *delivery) Release(ctx context.Context, after time.Duration) error {
	if after > 0 {
		if err := d.settleError(ctx); err != nil {
			return err
		}
		return fmt.Errorf("hworker release: a list cannot delay a job by %v: %w", after, broker.ErrUnsupported)
	}
	err := d.settle(ctx, "front", d.sub.keys.jobs, "")
	if err == nil {
		d.sub.broker.wakeSubscriptions(d.sub.keys.queue)
	}
	return err
}

// DeadLetter implements [broker.Delivery]. It is hworker's Failure: the job goes to the failed
// jobs, and the oldest of these above [Config].FailedSize are dropped. An Unreadable job goes to
// the broken ones. The layout stores no reasons, so the reason is only logged, after a success. It
// waits for the server. Returns ErrSettled or ErrLeaseLost if the job is no longer held. After any
// other error it may be called again. It takes d.mu.
func (d *delivery) DeadLetter(ctx context.Context, dead broker.Dead) error {
	b := d.sub.broker
	how, key, size := b.deadTarget(d.sub.keys, dead)
	err := d.settle(ctx, how, key, size)
	if err == nil {
		b.logFailure(d.sub.keys.queue, d.message.ID, dead)
	}
	return err
}

// settle ends the job with the operation how of settle.lua and waits for the server. key and value
// are the operation's arguments. It takes d.mu, for which it waits until ctx ends, and at the end
// of the job also b.mu and s.mu (finish).
//
//   - The job is ended: nil, and later settlements return ErrSettled.
//   - It was ended before: ErrSettled or ErrLeaseLost.
//   - The server no longer holds the job for this process: ErrLeaseLost, and Lost is closed. A
//     warning is logged, unless how is "front".
//   - ctx ends before d.mu is free: ErrUnavailable. The job can be settled again.
//   - The answer of the server is lost: ErrIndeterminate. The job may be ended. It can be settled
//     again; if it was ended, that returns ErrLeaseLost.
//   - Another error of the server: that error. The job can be settled again.
func (d *delivery) settle(ctx context.Context, how, key, value string) error {
	if err := d.lock(ctx); err != nil {
		return err
	}
	defer d.unlock()
	return d.settleLocked(ctx, how, key, value, broker.ErrSettled)
}

// returnToQueue returns the job to the front of its queue, for a Broker or subscription that
// closes. It waits for the server. Later settlements return ErrLeaseLost, and Lost is closed. It
// returns nil if the job is settled or lost already. It takes d.mu.
func (d *delivery) returnToQueue(ctx context.Context) error {
	if err := d.lock(ctx); err != nil {
		return err
	}
	defer d.unlock()
	if err := d.settleLocked(ctx, "front", d.sub.keys.jobs, "", broker.ErrLeaseLost); !broker.Gone(err) {
		return err
	}
	return nil
}

// settleLocked ends the job with the operation how of settle.lua and waits for the server. then
// is the error of later settlements. If d has ended already, it returns the error of that. If the
// server no longer holds the job for this process, the delivery is lost: it returns ErrLeaseLost
// and, unless how is "front", logs a warning. After any other error it can be settled again. Call
// it with d.mu held.
func (d *delivery) settleLocked(ctx context.Context, how, key, value string, then error) error {
	if d.state != nil {
		return d.state
	}
	if key == "" {
		key = d.sub.keys.jobs // the script does not use it
	}
	b := d.sub.broker
	n, err := b.runInt(ctx, how, b.scripts.settle, []string{d.sub.keys.progress, key}, d.scriptArgs(how, value)...)
	switch {
	case err != nil:
		return err
	case n != 1:
		if what := ends[how]; what != "" {
			b.log(slog.LevelWarn, d.sub.keys.queue, what+": the job was no longer in progress, and nothing was changed", slog.String("task_id", d.id()))
		}
		d.finish(broker.ErrLeaseLost)
		return d.state
	}
	d.finish(then)
	return nil
}

// ends holds hworker's names of the operations that end a job.
var ends = map[string]string{"done": "Success", "replace": "Retry", "failed": "Failure", "broken": "Broken"}

// id returns the message's id, "" if the payload is not a message.
func (d *delivery) id() string {
	if d.message == nil {
		return ""
	}
	return d.message.ID
}

// scriptArgs returns the arguments of a script about this job: the payload, more, and the start
// times.
func (d *delivery) scriptArgs(more ...string) []any {
	args := []any{d.payload}
	for _, a := range slices.Concat(more, d.starts) {
		args = append(args, a)
	}
	return args
}

// settleError returns the error that a settlement would return, nil if the job can be settled. It
// waits while a settlement is in progress. Returns ErrUnavailable if ctx ends first. It takes
// d.mu.
func (d *delivery) settleError(ctx context.Context) error {
	if err := d.lock(ctx); err != nil {
		return err
	}
	defer d.unlock()
	return d.state
}

// lock takes d.mu, and waits for it while a settlement or renewal is in progress. The caller must
// call unlock. Returns ErrUnavailable, without d.mu, if ctx ends first.
func (d *delivery) lock(ctx context.Context) error {
	select {
	case d.mu <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("hworker: another settlement is in progress: %w: %w", broker.ErrUnavailable, ctx.Err())
	}
}

// unlock frees d.mu.
func (d *delivery) unlock() { <-d.mu }

// finish ends the delivery: later settlements return why. It closes Lost unless why is ErrSettled.
// It removes the delivery from the Broker's held ones and from the subscription's count, which
// wakes the claiming goroutine. Call it once, with d.mu held. It takes b.mu and s.mu.
func (d *delivery) finish(why error) {
	d.state = fmt.Errorf("hworker: a job of %q: %w", d.sub.keys.queue, why)
	if !errors.Is(why, broker.ErrSettled) {
		close(d.lost)
	}
	if d.sub.broker.removeHeld(d) {
		d.sub.add(-1)
	}
}

// markLost ends a delivery of a closed Broker that could not be returned to the queue: it closes
// the channel Lost, and later settlements return ErrLeaseLost. Like finish, it removes the delivery
// from the held ones and wakes the claiming goroutine. It does nothing if the delivery has ended.
//
// It takes d.mu, for which it waits while a settlement or renewal is in progress, and then b.mu and
// s.mu. Call it without these locks.
func (d *delivery) markLost() {
	d.mu <- struct{}{}
	defer d.unlock()
	if d.state == nil {
		d.finish(broker.ErrLeaseLost)
	}
}

// markReceived marks the delivery as received, and reports whether the job is still held. Receive
// calls it before it returns the delivery. If the job has waited in this process for longer than
// checkInterval, its time begins now: markReceived renews the start time on the server (renew).
//
// It waits for that for at most about checkInterval; without an answer the start time stays. It
// takes d.mu, and waits for a settlement or renewal in progress even after the end of ctx.
func (d *delivery) markReceived(ctx context.Context) bool {
	d.mu <- struct{}{}
	defer d.unlock()
	d.received = true
	b := d.sub.broker
	if d.state == nil && time.Since(d.startedAt) > b.checkInterval() {
		soon, cancel := context.WithTimeout(ctx, max(b.checkInterval(), minTimeout))
		defer cancel()
		d.renew(soon, time.Now())
	}
	return d.state == nil
}

// renewOrCheck renews the start time of a held job on the server, or checks that this process still
// holds the job. upkeepLoop calls it at each checkInterval. It waits for the server. It takes d.mu,
// or does nothing if a settlement or renewal holds it.
//
//   - Config.Heartbeat is set, or Receive has not returned the job: it renews the start time if the
//     last proof that the job is held is a third of Config.Timeout old.
//   - Otherwise: it only checks that this process still holds the job, once the job runs longer
//     than Config.Timeout.
//   - The delivery has ended: it does nothing.
func (d *delivery) renewOrCheck(ctx context.Context) {
	select {
	case d.mu <- struct{}{}:
		defer d.unlock()
	default:
		return // it is being settled
	}
	b, now := d.sub.broker, time.Now()
	renews := b.cfg.Heartbeat || !d.received
	switch {
	case d.state != nil, renews && now.Sub(d.provenAt) < b.cfg.Timeout/3, !renews && now.Sub(d.startedAt) < b.cfg.Timeout:
	case renews:
		d.renew(ctx, now)
	default:
		d.checkHeld(ctx, "", now)
	}
}

// renew notes a new start time, now, on the server and waits for the answer. If the job is not
// held any more, the delivery is lost, see checkHeld. After a lost answer d.starts holds the old
// and the new start time. Call it with d.mu held.
func (d *delivery) renew(ctx context.Context, now time.Time) {
	start := parseStamp(d.starts[0]).Add(now.Sub(d.startedAt)).Format(stampLayout)
	d.starts = append(d.starts, start) // added before the call, because the answer may be lost
	d.checkHeld(ctx, start, now)
}

// checkHeld asks the server whether this process still holds the job, and waits for the answer.
// Unless start is "" the server notes start as the new start time. Call it with d.mu held.
//
//   - The job is held: the proof counts from now.
//   - The job is not held any more: the delivery is lost.
//   - An error, and the last proof is nearly Config.Timeout old: the delivery is lost.
//   - Another error: nothing changes.
func (d *delivery) checkHeld(ctx context.Context, start string, now time.Time) {
	b := d.sub.broker
	n, err := b.runInt(ctx, "keep", b.scripts.hold, []string{d.sub.keys.progress}, d.scriptArgs(start)...)
	switch {
	case err == nil && n == 1:
		d.provenAt = now
		if start != "" {
			d.starts, d.startedAt = []string{start}, now
		}
	// a monitor may have returned it to the queue meanwhile
	case err == nil, time.Since(d.provenAt) > b.cfg.Timeout-b.checkInterval():
		d.finish(broker.ErrLeaseLost)
	}
}
