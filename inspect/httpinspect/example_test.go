package httpinspect_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/inspect/httpinspect"
	"github.com/swarmiji/swarmiji/open"
)

// One process serves the API, and another one calls it as if it were local. A dashboard serves the
// same at /api/v1, with users and roles.
func ExampleClient() {
	ctx := context.Background()
	swarm, err := open.Open(ctx, "mem://", open.Options{Control: true})
	if err != nil {
		panic(err)
	}
	defer func() { _ = swarm.Close(ctx) }()
	local, err := open.Inspector(swarm, inspect.Config{})
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(httpinspect.NewHandler(local, httpinspect.Config{
		Allow: func(_ *http.Request, do inspect.Do, target string) error {
			return &inspect.Error{Code: inspect.CodeDenied, Text: fmt.Sprintf("%s of %s is not allowed here", do, target)}
		},
	}))
	defer server.Close()

	var api inspect.API
	if api, err = httpinspect.NewClient(httpinspect.ClientConfig{URL: server.URL}); err != nil {
		panic(err)
	}
	_, err = api.GetTask(ctx, inspect.TaskKey{ID: "nobody-knows"})
	fmt.Println(errors.Is(err, inspect.ErrNotFound))
	_, err = api.PurgeQueue(ctx, inspect.Purge{Queue: "mail"})
	fmt.Println(err)
	// Output:
	// true
	// purge-queue of mail is not allowed here
}
