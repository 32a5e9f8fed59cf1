package bedrock_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"strings"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/bedrock"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
)

// A job is created over the line protocol and claimed in Go.
func ExampleServer() {
	ctx, stop := context.WithCancel(context.Background())
	store, err := memjobs.New(memjobs.Config{})
	if err != nil {
		log.Fatal(err)
	}
	service, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		log.Fatal(err)
	}
	server, err := bedrock.New(bedrock.Config{Service: service, Listen: "127.0.0.1:0"})
	if err != nil {
		log.Fatal(err)
	}
	// server.Run(ctx) performs both steps; here the port is not known before
	ln, err := server.Listen(ctx)
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, ln) }()

	// Like printf 'CreateJob\nname: foo\n...' | nc -N.
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	_, _ = io.WriteString(conn, "CreateJob\nname: foo\ndata: {\"value\":1}\n\nGetJob\nname: bar*\n\n")
	_ = conn.(*net.TCPConn).CloseWrite()
	answers, err := io.ReadAll(conn)
	fmt.Println(strings.ReplaceAll(string(answers), "\r\n", "\n"), err)
	_ = conn.Close()

	got, err := service.Get(ctx, jobs.Request{Selector: jobs.Selector{Pattern: "f*"}})
	fmt.Println(got[0].ID, got[0].Name, string(got[0].Data), err)
	stop()
	fmt.Println(<-ended, service.Close(context.Background()))
	// Output:
	// 200 OK
	// Content-Length: 11
	//
	// {"jobID":1}404 No job found
	// Content-Length: 0
	//
	//  <nil>
	// 1 foo {"value":1} <nil>
	// <nil> <nil>
}
