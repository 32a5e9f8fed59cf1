package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/swarmiji/swarmiji/dashboard"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/open"
)

// A program shows the dashboard below a prefix of its own server. Users log in with a name and a
// password.
func ExampleDashboard() {
	ctx := context.Background()
	swarm, err := open.Open(ctx, "mem://", open.Options{Control: true})
	if err != nil {
		panic(err)
	}
	defer func() { _ = swarm.Close(ctx) }()
	api, err := open.Inspector(swarm, inspect.Config{})
	if err != nil {
		panic(err)
	}
	d, err := dashboard.New(dashboard.Config{
		API:   api,
		Users: []dashboard.User{{Name: "ada", Password: "correct horse", Role: dashboard.Operator}},
	})
	if err != nil {
		panic(err)
	}
	defer func() { _ = d.Close(ctx) }() // before the server ends: it ends the live streams

	mux := http.NewServeMux()
	mux.Handle("/swarmiji/", http.StripPrefix("/swarmiji", d))
	server := httptest.NewServer(mux) // http.ListenAndServe in a real program
	defer server.Close()

	for _, password := range []string{"", "correct horse"} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/swarmiji/audit", nil)
		if err != nil {
			panic(err)
		}
		if password != "" {
			r.SetBasicAuth("ada", password)
		}
		resp, err := server.Client().Do(r)
		if err != nil {
			panic(err)
		}
		_ = resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}
	// Output:
	// 401
	// 200
}
