package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// rawNATS is the bare NATS client, with a work-queue stream and a pull consumer. With -plain the
// stream has one subject and no settings, messages have no ids, and acknowledgements are not
// awaited.
type rawNATS struct {
	cfg     *config
	nc      *nats.Conn
	js      jetstream.JetStream
	stream  string
	results string // stream of results
	prefix  string // of the subjects
	body    int    // bytes of a message, the same as a task of Swarmiji
	begun   string // makes the ids of this process different from those of others

	calls calls
	ids   atomic.Int64
}

func dialRawNATS(ctx context.Context, cfg *config) (client, error) {
	nc, err := natsClient(cfg)
	if err != nil {
		return nil, err
	}
	name := strings.ReplaceAll(cfg.Queue, ".", "-")
	c := &rawNATS{
		cfg: cfg, nc: nc, stream: "RAW_" + name, results: "RAWRESULTS_" + name, prefix: "raw." + name + ".",
		begun: strconv.FormatInt(time.Now().UnixNano(), 16)[:12],
	}
	if c.js, err = jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(2*natsWindow)); err == nil {
		c.body, err = bodySize(ctx, cfg)
	}
	if err == nil && (cfg.Workload == "roundtrip" || cfg.Workload == fill && cfg.Results) {
		err = c.listen(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.close(ctx))
	}
	return c, nil
}

// natsClient connects to the broker's servers. It ignores the URL parameter namespace, which only
// Swarmiji understands. Returns an error for any other parameter.
func natsClient(cfg *config) (*nats.Conn, error) {
	servers, query, _ := strings.Cut(cfg.Broker, "?")
	params, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("%s is no URL of a NATS server", cfg.address())
	}
	for p := range params {
		if p != "namespace" {
			return nil, fmt.Errorf("the bare client does not know parameter %s", p)
		}
	}
	return nats.Connect(servers)
}

// declare creates the stream. Without -plain, Swarmiji first creates its own stream, so that the
// settings are the same.
func (c *rawNATS) declare(ctx context.Context) error {
	have := jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage}
	if !c.cfg.Plain {
		if _, err := locate(ctx, c.cfg); err != nil {
			return err
		}
		ours, err := c.js.Stream(ctx, "SWJ_"+c.cfg.Queue)
		if err != nil {
			return fmt.Errorf("the stream whose settings are to be used: %w", err)
		}
		have = ours.CachedInfo().Config
	}
	have.Name, have.Subjects, have.Description = c.stream, []string{c.prefix + "T.>"}, ""
	_, err := c.js.CreateOrUpdateStream(ctx, have)
	return err
}

// message returns a task as a message of the stream.
func (c *rawNATS) message() *nats.Msg {
	m := &nats.Msg{Subject: c.prefix + "T.q", Data: stamped(c.body)}
	if c.cfg.Plain {
		return m
	}
	id := fmt.Sprintf("%s-%s-%012x", someID[:10], c.begun, c.ids.Add(1)) // as long as a task's id
	m.Subject = c.prefix + "T." + c.cfg.Queue + ".0." + id
	m.Header = nats.Header{"Nats-Msg-Id": []string{id}, "Content-Type": []string{"application/octet-stream"}}
	return m
}

func (c *rawNATS) submit(ctx context.Context) error {
	_, err := c.js.PublishMsg(ctx, c.message())
	return err
}

// natsWindow limits the unconfirmed messages. It is the client's own default.
const natsWindow = 4000

func (c *rawNATS) submitAll(ctx context.Context, n int) error {
	var sent [natsWindow]jetstream.PubAckFuture
	for i := range n + natsWindow {
		if f := sent[i%natsWindow]; f != nil {
			select {
			case <-f.Ok():
			case err := <-f.Err():
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		sent[i%natsWindow] = nil
		if i >= n {
			continue
		}
		f, err := c.js.PublishMsgAsync(c.message())
		if err != nil {
			return err
		}
		sent[i%natsWindow] = f
	}
	return nil
}

// listen creates the stream of results with Swarmiji's settings and subscribes to the announcements
// of results.
func (c *rawNATS) listen(ctx context.Context) error {
	_, err := c.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: c.results, Subjects: []string{c.prefix + "R.*"}, MaxMsgsPerSubject: 1, Storage: jetstream.FileStorage,
		AllowDirect: true, AllowMsgTTL: true,
	})
	if err != nil {
		return err
	}
	_, err = c.nc.Subscribe(c.prefix+"N", func(m *nats.Msg) { c.calls.end(m.Header.Get(headerCall)) })
	return err
}

// headerCall is the header with the id of the call, in a message and in the announcement of its
// result.
const headerCall = "Call"

func (c *rawNATS) call(ctx context.Context) error {
	id, done := c.calls.begin()
	m := c.message()
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	m.Header.Set(headerCall, id)
	if _, err := c.js.PublishMsg(ctx, m); err != nil {
		return err
	}
	return await(ctx, done)
}

func (c *rawNATS) serve(ctx context.Context, seen func([]byte)) error {
	prefetch := max(c.cfg.Prefetch, 1)
	settings := jetstream.ConsumerConfig{ // the settings of Swarmiji's consumer
		Durable: "w", FilterSubject: c.prefix + "T." + c.cfg.Queue + ".0.*", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: 30 * time.Second, MaxDeliver: -1, MaxAckPending: -1, MaxWaiting: 16384,
	}
	if c.cfg.Plain {
		settings = jetstream.ConsumerConfig{Durable: "w", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: max(prefetch, 1000)}
	}
	con, err := c.js.CreateOrUpdateConsumer(ctx, c.stream, settings)
	if err != nil {
		return err
	}
	messages, err := con.Messages(jetstream.PullMaxMessages(prefetch), jetstream.WithMessagesErrOnMissingHeartbeat(false))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, messages.Stop)
	defer stop()
	if c.cfg.Results && c.cfg.Workload != "roundtrip" {
		return c.settleWithResults(messages, prefetch, seen)
	}
	for {
		m, err := messages.Next()
		switch {
		case errors.Is(err, jetstream.ErrMsgIteratorClosed):
			return c.nc.FlushTimeout(patience) // sends the last acknowledgements
		case err != nil:
			return err
		}
		if c.cfg.Workload == "roundtrip" {
			go c.answer(ctx, m) // otherwise one answer would wait for another
			continue
		}
		seen(m.Data())
		if err := m.Ack(); err != nil {
			return err
		}
	}
}

// answer stores the result, announces it and acknowledges the message. If it fails, the caller's
// context ends.
func (c *rawNATS) answer(ctx context.Context, m jetstream.Msg) {
	call := m.Headers().Get(headerCall)
	if _, err := c.js.PublishMsg(context.WithoutCancel(ctx), c.result(call, m.Data())); err != nil {
		return
	}
	_ = c.announce(call, m)
}

// result returns a message that stores the result of a call.
func (c *rawNATS) result(call string, data []byte) *nats.Msg {
	return &nats.Msg{
		Subject: c.prefix + "R." + call + "-" + c.begun, Data: data,
		Header: nats.Header{
			"Nats-TTL":                            []string{strconv.Itoa(int(resultTTL.Seconds()))},
			"Nats-Expected-Last-Subject-Sequence": []string{"0"},
		},
	}
}

// announce announces the stored result of a call, and acknowledges its message m.
func (c *rawNATS) announce(call string, m jetstream.Msg) error {
	if err := c.nc.PublishMsg(&nats.Msg{Subject: c.prefix + "N", Data: m.Data(), Header: nats.Header{headerCall: []string{call}}}); err != nil {
		return err
	}
	return m.Ack()
}

// settleWithResults stores a result for each message and does not wait. When the result is stored,
// it announces the result and acknowledges the message.
func (c *rawNATS) settleWithResults(messages jetstream.MessagesContext, prefetch int, seen func([]byte)) error {
	type sent struct {
		m      jetstream.Msg
		call   string
		stored jetstream.PubAckFuture
	}
	results, acked := make(chan sent, prefetch), make(chan error, 1)
	go func() {
		var failed error
		for r := range results {
			if failed != nil {
				continue
			}
			select {
			case <-r.stored.Ok():
				failed = c.announce(r.call, r.m)
			case failed = <-r.stored.Err():
			}
			if failed != nil {
				messages.Stop()
			}
		}
		acked <- errors.Join(failed, c.nc.FlushTimeout(patience))
	}()
	for {
		m, err := messages.Next()
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			close(results)
			return <-acked
		}
		if err != nil {
			return err
		}
		seen(m.Data())
		r := sent{m: m, call: strconv.FormatInt(c.ids.Add(1), 10)}
		if r.stored, err = c.js.PublishMsgAsync(c.result(r.call, m.Data())); err != nil {
			return err
		}
		results <- r
	}
}

func (c *rawNATS) left(ctx context.Context) (int, error) {
	s, err := c.js.Stream(ctx, c.stream)
	if err != nil {
		return 0, err
	}
	return int(s.CachedInfo().State.Msgs), nil
}

func (c *rawNATS) remove(ctx context.Context) error { return removeStreams(ctx, c.cfg) }

func (c *rawNATS) close(context.Context) error {
	c.nc.Close()
	return nil
}

// removeStreams deletes all streams whose names contain the queue's name.
func removeStreams(ctx context.Context, cfg *config) error {
	nc, err := natsClient(cfg)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	streams := js.StreamNames(ctx)
	var errs []error
	for name := range streams.Name() {
		if strings.Contains(name, cfg.Queue) {
			errs = append(errs, js.DeleteStream(ctx, name))
		}
	}
	return errors.Join(append(errs, streams.Err())...)
}
