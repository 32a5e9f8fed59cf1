package callback_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/callback"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
)

type letter struct {
	Number int `json:"number"`
	Pages  int `json:"pages"`
}

type receipt struct {
	Pages int `json:"pages"`
}

// printing runs jobs whose request calls send. create creates one and waits for its end; end stops
// everything.
func printing(send func(key string)) (service *jobs.Service, printed <-chan string, create func(number int), end func()) {
	store, err := memjobs.New(memjobs.Config{})
	check(err)
	service, err = jobs.New(jobs.Config{Store: store})
	check(err)
	out := make(chan string, 1)
	kind := runner.Type[letter, receipt]{
		Name:    "print",
		Key:     func(l letter) string { return fmt.Sprint("letter/", l.Number) },
		Request: func(_ context.Context, l letter) error { send(fmt.Sprint("letter/", l.Number)); return nil },
		Response: func(_ context.Context, l letter, r receipt) (letter, error) {
			out <- fmt.Sprintf("letter %d has %d pages", l.Number, r.Pages)
			l.Pages = r.Pages
			return l, nil
		},
	}
	worker, err := runner.New(runner.Config{Service: service, Queue: &queue.Queue{Name: "printer", Limit: 10}})
	check(err)
	check(kind.Register(worker))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	create = func(number int) {
		_, err := kind.Create(ctx, service, "printer", letter{Number: number})
		check(err)
	}
	return service, out, create, func() {
		stop()
		check(errors.Join(<-ended, service.Close(context.Background()), store.Close(context.Background())))
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// An external service answers by HTTP. The URL that it receives with the request is valid for this
// answer only.
func ExampleNewHandler() {
	signer, err := callback.NewSigner(callback.SignerConfig{Secrets: [][]byte{[]byte("32 random bytes from a safe place")}})
	check(err)
	var base string
	urls := make(chan string, 1)
	service, printed, create, end := printing(func(key string) {
		u, err := signer.URL(base, "print", key) // sent with the request
		check(err)
		urls <- u
	})
	defer end()
	handler, err := callback.NewHandler(callback.Config{Service: service, Prefix: "/answers", Signer: signer})
	check(err)
	mux := http.NewServeMux()
	mux.Handle("/answers/", handler)
	server := httptest.NewServer(mux) // a production server sets ReadTimeout
	defer server.Close()
	base = server.URL + "/answers/"

	create(17)
	answer := func(url string) {
		res, err := server.Client().Post(url, "application/json", strings.NewReader(`{"pages":3}`))
		check(err)
		var said struct{ Status, Error string } // and the number of the job
		check(errors.Join(json.NewDecoder(res.Body).Decode(&said), res.Body.Close()))
		fmt.Println(res.StatusCode, said.Status+said.Error)
	}
	u := <-urls
	answer(u)
	fmt.Println(<-printed)
	answer(u)
	answer(strings.Replace(u, "17", "18", 1))
	// Output:
	// 200 accepted
	// letter 17 has 3 pages
	// 409 duplicate
	// 403 forbidden
}

// An external service answers by message, in its own format.
func ExampleNewListener() {
	b := membroker.New() // or a broker for RabbitMQ, Redis or NATS
	ctx, stop := context.WithCancel(context.Background())
	check(broker.Declare(ctx, b, broker.Queue{Name: "printed"}))
	service, printed, create, end := printing(func(key string) {
		// The service receives the request, prints, and answers on a queue.
		check(b.Publish(ctx, "printed", &broker.Message{ID: "m-1", Body: []byte(key + "=3")}))
	})
	defer end()
	listener, err := callback.NewListener(callback.ListenerConfig{
		Service: service, Broker: b, Queue: "printed",
		// without Read, messages are JSON; see ReadMessage
		Read: func(m *broker.Message) (jobs.Answer, error) {
			key, pages, ok := strings.Cut(string(m.Body), "=")
			if !ok {
				return jobs.Answer{}, errors.New("no answer of the printer")
			}
			return jobs.Answer{Name: "print", Key: key, Result: []byte(`{"pages":` + pages + `}`)}, nil
		},
	})
	check(err)
	ended := make(chan error, 1)
	go func() { ended <- listener.Run(ctx) }()

	create(17)
	fmt.Println(<-printed)
	stop()
	fmt.Println(<-ended, listener.Stats().Accepted, b.Close(context.Background()))
	// Output:
	// letter 17 has 3 pages
	// <nil> 1 <nil>
}

// The URL contains the end of its validity. Keys that a proxy might change in a path are
// parameters.
func ExampleSigner() {
	signer, err := callback.NewSigner(callback.SignerConfig{Secrets: [][]byte{
		[]byte("the secret in use, of 32 bytes.."), // signs
		[]byte("the one before, still accepted.."),
	}})
	check(err)
	for _, key := range []string{"letter-17", "letter/17"} {
		u, err := signer.URL("https://example.org/answers", "print", key)
		check(err)
		before, _, _ := strings.Cut(u, "signature=")
		path, _, _ := strings.Cut(before, "expires=")
		fmt.Println(path + "...")
	}
	// Output:
	// https://example.org/answers/print/letter-17?...
	// https://example.org/answers?...
}

// A service that signs its requests needs no signed URLs.
func ExampleConfig_verify() {
	store, err := memjobs.New(memjobs.Config{})
	check(err)
	service, err := jobs.New(jobs.Config{Store: store})
	check(err)
	sign := func(body []byte) []byte {
		h := hmac.New(sha256.New, []byte("the secret of the service"))
		h.Write(body)
		return h.Sum(nil)
	}
	handler, err := callback.NewHandler(callback.Config{Service: service, Verify: func(r *http.Request, body []byte) error {
		got, err := hex.DecodeString(r.Header.Get("X-Signature"))
		if err != nil || !hmac.Equal(got, sign(body)) {
			return errors.New("not signed by the service")
		}
		return nil
	}})
	check(err)
	send := func(body string, signature []byte) {
		r := httptest.NewRequest(http.MethodPost, "/print/letter-17", strings.NewReader(body))
		r.Header.Set("X-Signature", hex.EncodeToString(signature))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body)
	}
	send(`{"pages":3}`, sign([]byte(`{"pages":2}`)))
	send(`{"pages":3}`, sign([]byte(`{"pages":3}`))) // no job awaits it yet
	check(errors.Join(service.Close(context.Background()), store.Close(context.Background())))
	// Output:
	// 403 {"error":"forbidden"}
	// 202 {"status":"early"}
}
