// Callback has jobs done by somebody else, who answers later: a print shop takes orders over HTTP, each with a URL, and calls that when it has printed. It is in this program
// too, but reached over HTTP alone; it runs out of paper, forgets an order, and tells twice of another. While jobs wait the program says why, for each of them.
//
//	go run ./examples/callback
//
// needs no server. The jobs are in a SQLite file, which is gone with the program unless -store names another one, or PostgreSQL: a program that is killed in the meantime finds
// its jobs again when it is started with the same one, and the answers that were on their way to it time out.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/callback"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
	"github.com/swarmiji/swarmiji/when"
)

// Order is what a job holds.
type Order struct {
	Order  string `json:"order"`
	Pages  int    `json:"pages"`
	Sheets int    `json:"sheets,omitempty"` // as the shop has told
}

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
	store, err := sqljobs.New(sqljobs.Config{URL: url})
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

	// The shop, which is somebody else's.
	printer := newShop()
	shopURL, end, err := serve(ctx, printer)
	if err != nil {
		return err
	}
	defer closing(&err, end)

	// What it calls. Where it is given a URL only that can be answered, and nobody else can make one.
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
	worker, err := runner.New(runner.Config{Service: service, Queue: &queue.Queue{Name: "shop", Limit: 2}}) // the shop does not like more than two at a time
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
	if err := service.Withdraw(ctx, night); err != nil { // nobody waits for it here
		return err
	}
	return total(ctx, out, service, ids)
}

// printJobs is the type of the jobs: a request now, an answer later.
func printJobs(shop string, callbackURL func(key string) (string, error)) runner.Type[Order, Printed] {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return runner.Type[Order, Printed]{
		Name: "print",
		Key:  func(o Order) string { return o.Order },
		Request: func(ctx context.Context, o Order) error {
			to, err := callbackURL(o.Order)
			if err != nil {
				return err
			}
			body, err := json.Marshal(Request{Order: o.Order, Pages: o.Pages, Callback: to})
			if err != nil {
				return err
			}
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, shop, bytes.NewReader(body))
			if err != nil {
				return err
			}
			res, err := client.Do(r)
			if err != nil {
				return err
			}
			_ = res.Body.Close()
			if res.StatusCode != http.StatusAccepted {
				return errors.New("the shop says " + res.Status)
			}
			return nil
		},
		Response: func(_ context.Context, o Order, a Printed) (Order, error) {
			o.Sheets = a.Sheets
			return o, nil
		},
		Retry: func(_ context.Context, f *runner.Failure[Order]) bool {
			f.At = time.Now().Add(300 * time.Millisecond)
			return f.Attempt < 5
		},
		Timeout: 2 * time.Second, // a real shop would have a day
	}
}

// order makes the jobs, and returns their ids. The last one is for the night.
func order(ctx context.Context, service *jobs.Service, prints runner.Type[Order, Printed]) ([]jobs.ID, error) {
	var ids []jobs.ID
	for i, name := range []string{"poster", "brochure", "calendar", "flyer", "ticket"} {
		id, err := prints.Create(ctx, service, "shop", Order{Order: name, Pages: 10 * (i + 1)})
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	open := time.Now().UTC().Add(6 * time.Hour) // "night" is whatever is far enough from now
	night, err := when.ParseWindows(open.Format("15:04")+"-"+open.Add(time.Hour).Format("15:04"), time.UTC)
	if err != nil {
		return nil, err
	}
	id, err := prints.Create(ctx, service, "shop", Order{Order: "newspaper", Pages: 64}, func(s *jobs.Spec) { s.Windows = night })
	return append(ids, id), err
}

// watch says why jobs are not done, whenever that is for another reason than before, until all of them are over but one.
func watch(ctx context.Context, out io.Writer, service *jobs.Service, ids []jobs.ID, but jobs.ID) error {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	said := map[jobs.ID]string{}
	for {
		left := 0
		for _, id := range ids {
			why, err := service.Explain(ctx, id)
			if err != nil {
				return err
			}
			if id != but && !why.Job.State.Over() {
				left++
			}
			if text := strings.ReplaceAll(why.String(), "\n", " "); text != said[id] {
				said[id] = text
				say(out, "%-9s %s\n", why.Job.Key, text)
			}
		}
		if left == 0 {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// total says how all of it has ended.
func total(ctx context.Context, out io.Writer, service *jobs.Service, ids []jobs.ID) error {
	for _, id := range ids {
		j, err := service.Query(ctx, id)
		if err != nil {
			return err
		}
		var o Order
		if err := json.Unmarshal(j.Data, &o); err != nil {
			return err
		}
		say(out, "%-9s %s after %d attempts, %d sheets\n", o.Order, j.State, j.Attempt, o.Sheets)
	}
	return nil
}

// say writes for a person who may have gone: then there is nobody to tell.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// serve serves HTTP on a port of this machine.
func serve(ctx context.Context, h http.Handler) (url string, end func(context.Context) error, err error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{Handler: h, ReadTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ln) }()
	return "http://" + ln.Addr().String(), func(ctx context.Context) error {
		err := s.Shutdown(ctx)
		if why := <-ended; !errors.Is(why, http.ErrServerClosed) {
			err = errors.Join(err, why)
		}
		return err
	}, nil
}

// start runs something. What it returns ends that, and waits for it.
func start(run func(context.Context) error) (stop func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return func(context.Context) error {
		cancel()
		return <-ended
	}
}

// closing closes something at the end of a function, which fails if that does.
func closing(err *error, end func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	*err = errors.Join(*err, end(ctx))
}
