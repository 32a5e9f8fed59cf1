// Callback runs jobs that an external service answers later. A print shop takes orders over HTTP,
// each with a URL, and calls the URL when it has printed. The shop is in this program too, but
// reached over HTTP only. It runs out of paper, forgets an order, and answers another order twice.
// While jobs wait, the program prints the reason for each of them.
//
//	go run ./examples/callback
//
// needs no server. The jobs are in a SQLite file, which is deleted with the program unless -store
// names another file or PostgreSQL. A killed program finds its jobs again when it starts with the
// same store. Answers that were on their way to it time out.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	_ "time/tzdata" // machines without zone files

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/callback"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/postgres"
	_ "github.com/swarmiji/swarmiji/open/sqlite"
)

func main() {
	store := flag.String("store", "", "`URL` of the jobs: sqlite:FILE or postgres://...; none: a file that is gone at the end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *store); err != nil {
		fmt.Fprintln(os.Stderr, "callback:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, url string) (err error) {
	if url == "" {
		dir, err := os.MkdirTemp("", "callback")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		url = "sqlite:" + filepath.ToSlash(filepath.Join(dir, "jobs.db"))
	}
	store, err := open.Jobs(ctx, url, open.JobsOptions{})
	if err != nil {
		return err
	}
	defer closing(&err, store.Close)
	service, err := jobs.New(jobs.Config{Store: store, OnAnswer: func(a jobs.Answer, r jobs.Receipt) {
		say(out, "an answer for %s was %s\n", a.Key, strings.ToLower(string(r.Kind)))
	}})
	if err != nil {
		return err
	}
	defer closing(&err, service.Close)

	// The external shop.
	printer := newShop()
	shopURL, end, err := serve(ctx, printer)
	if err != nil {
		return err
	}
	defer closing(&err, end)

	// The callback. A URL allows one answer only, and only this program can make one.
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it does not fail; a program of many processes is given one instead
	signer, err := callback.NewSigner(callback.SignerConfig{Secrets: [][]byte{secret}, Valid: time.Hour})
	if err != nil {
		return err
	}
	answers, err := callback.NewHandler(callback.Config{Service: service, Prefix: "/answers", Signer: signer})
	if err != nil {
		return err
	}
	base, end, err := serve(ctx, answers)
	if err != nil {
		return err
	}
	defer closing(&err, end)
	defer printer.close()

	prints := printJobs(shopURL, func(key string) (string, error) { return signer.URL(base+"/answers", "print", key) })
	// the shop accepts two orders at a time
	worker, err := runner.New(runner.Config{Service: service, Queue: &queue.Queue{Name: "shop", Limit: 2}})
	if err != nil {
		return err
	}
	if err := prints.Register(worker); err != nil {
		return err
	}
	defer closing(&err, start(worker.Run))

	ids, err := order(ctx, service, prints)
	if err != nil {
		return err
	}
	night := ids[len(ids)-1]
	if err := watch(ctx, out, service, ids, night); err != nil {
		return err
	}
	if err := service.Withdraw(ctx, night); err != nil { // no program waits for this job
		return err
	}
	return total(ctx, out, service, ids)
}
