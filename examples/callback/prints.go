package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/when"
)

// Order is the data of a job.
type Order struct {
	Order  string `json:"order"`
	Pages  int    `json:"pages"`
	Sheets int    `json:"sheets,omitempty"` // as the shop has told
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
