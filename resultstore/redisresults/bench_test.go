package redisresults_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/resultstore/resultstoretest"
	"github.com/swarmiji/swarmiji/task"
)

func BenchmarkStore(b *testing.B) { resultstoretest.Bench(b, harness) }

// BenchmarkSave compares concurrent Saves with the bare client. The client sends SET with PX and
// PUBLISH for each record, in two concurrent pipelines. Together the pipelines hold as many records
// as there are concurrent Saves.
func BenchmarkSave(b *testing.B) {
	srv := testserver.OwnRedis(b, testserver.RedisConfig{AOF: "everysec"})
	for _, workers := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("store/%d", workers), func(b *testing.B) { benchStore(b, srv, workers) })
		b.Run(fmt.Sprintf("raw/%d", workers), func(b *testing.B) { benchRaw(b, srv, (workers+1)/2) })
	}
}

func benchStore(b *testing.B, srv *testserver.Redis, workers int) {
	s := open(b, options(srv, srv.Addr()), testserver.Namespace())
	n := notify(b, s, "node")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		for {
			if _, err := n.Receive(ctx); err != nil {
				return
			}
		}
	}()
	save(b, s, done("node", -1))
	b.ReportAllocs()
	b.ResetTimer()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			r := done("node", 0)
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				r.ID = task.ID("task-" + strconv.FormatInt(i, 10))
				if err := s.Save(ctx, r); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "saves/s")
}

func benchRaw(b *testing.B, srv *testserver.Redis, batch int) {
	c := redis.NewUniversalClient(options(srv, srv.Addr()))
	defer c.Close()
	ns := testserver.Namespace()
	sub := c.Subscribe(b.Context(), ns+"node")
	defer sub.Close()
	heard := sub.Channel()
	go func() {
		for range heard {
		}
	}()
	value := make([]byte, 150) // as large as a value of the store
	b.ResetTimer()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for next.Load() < int64(b.N) {
				pipe := c.Pipeline()
				for range batch {
					i := next.Add(1)
					if i > int64(b.N) {
						break
					}
					pipe.Set(b.Context(), ns+strconv.FormatInt(i, 10), value, 24*time.Hour)
					pipe.Publish(b.Context(), ns+"node", value)
				}
				if _, err := pipe.Exec(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "saves/s")
}
