package natsresults_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/broker/natsbroker/embedded"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore/natsresults"
)

// BenchmarkAgainstRaw compares Save of final records with the bare client library. The library
// stores messages of the same size and headers in a stream with the same settings. Both run
// sequentially and from 64 goroutines.
func BenchmarkAgainstRaw(b *testing.B) {
	for name, url := range map[string]func(b *testing.B) (string, nats.InProcessConnProvider){
		"server":    func(b *testing.B) (string, nats.InProcessConnProvider) { return testserver.RequireNATS(b).URL(), nil },
		"inprocess": func(b *testing.B) (string, nats.InProcessConnProvider) { return "", server(b, embedded.Options{}) },
	} {
		b.Run(name, func(b *testing.B) {
			u, p := url(b)
			cfg := natsresults.Config{Connect: natsconnect.Config{InProcess: p}, Namespace: testserver.Namespace()}
			if u != "" {
				cfg.Connect.URLs = []string{u}
			}
			s := open(b, cfg)
			js := rawBeside(b, u, p)
			save := func(b *testing.B, i int64) {
				if err := s.Save(b.Context(), done("", i)); err != nil {
					b.Error(err)
				}
			}
			raw := func(b *testing.B, i int64) {
				m := &nats.Msg{Subject: "raw.R." + strconv.FormatInt(i, 10), Data: make([]byte, 100), Header: nats.Header{
					"Nats-TTL": {"86400"}, "Nats-Expected-Last-Subject-Sequence": {"0"},
				}}
				if _, err := js.PublishMsg(b.Context(), m); err != nil {
					b.Error(err)
				}
			}
			var next atomic.Int64
			next.Store(time.Now().UnixNano())
			for _, k := range []struct {
				name string
				one  func(b *testing.B, i int64)
			}{{"save", save}, {"raw", raw}} {
				b.Run(k.name+"/serial", func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						k.one(b, next.Add(1))
					}
				})
				b.Run(k.name+"/64", func(b *testing.B) {
					b.ReportAllocs()
					b.SetParallelism(32)
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							k.one(b, next.Add(1))
						}
					})
				})
			}
		})
	}
}

// rawBeside makes a stream with the settings of the store's stream, on its own connection.
func rawBeside(b *testing.B, url string, p nats.InProcessConnProvider) jetstream.JetStream {
	b.Helper()
	opts := []nats.Option{}
	if p != nil {
		opts = append(opts, nats.InProcessServer(p))
	}
	conn, err := nats.Connect(url, opts...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err == nil {
		_, err = js.CreateOrUpdateStream(testwait.Long(b), jetstream.StreamConfig{
			Name: "RAW", Subjects: []string{"raw.R.*"}, MaxMsgsPerSubject: 1, AllowMsgTTL: true, AllowDirect: true,
		})
	}
	if err != nil {
		b.Fatal(err)
	}
	return js
}
