package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// A task does not run. Why names the cause and the action that helps. The command line and
// dashboards ask the same interface.
func ExampleLocal_Why() {
	ctx := context.Background()
	swarm, err := open.Open(ctx, "mem://", open.Options{Control: true})
	if err != nil {
		panic(err)
	}
	defer func() { _ = swarm.Close(ctx) }()
	p, err := swarm.Producer(producer.Config{Router: router.Static("mail")})
	if err != nil {
		panic(err)
	}
	defer func() { _ = p.Close(ctx) }()
	welcome := task.New[string, string]("mail.welcome")
	if _, err := welcome.Submit(ctx, p, "ada@example.com", task.WithID("welcome-ada")); err != nil {
		panic(err)
	}

	var api inspect.API
	if api, err = open.Inspector(swarm, inspect.Config{Queues: []string{"mail"}, Listen: 100 * time.Millisecond}); err != nil {
		panic(err)
	}
	why, err := api.Why(ctx, inspect.TaskKey{ID: "welcome-ada"})
	if err != nil {
		panic(err)
	}
	for _, r := range why.Reasons {
		fmt.Println(r.Kind, "|", r.Text)
		fmt.Println(r.Help.Do, "|", r.Help.Text)
	}
	// Output:
	// no consumer | No consumer of queue mail answers or sends heartbeats.
	// start-consumer | start a consumer of queue mail
}

// A change counts first in a dry run. The audit log names its author.
func ExampleLocal_PurgeQueue() {
	ctx := inspect.WithActor(context.Background(), "ada")
	swarm, err := open.Open(ctx, "mem://", open.Options{Control: true})
	if err != nil {
		panic(err)
	}
	defer func() { _ = swarm.Close(ctx) }()
	p, err := swarm.Producer(producer.Config{Router: router.Static("mail")})
	if err != nil {
		panic(err)
	}
	defer func() { _ = p.Close(ctx) }()
	welcome := task.New[string, string]("mail.welcome")
	for range 3 {
		if _, err := welcome.Submit(ctx, p, "ada@example.com"); err != nil {
			panic(err)
		}
	}

	api, err := open.Inspector(swarm, inspect.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	would, err := api.PurgeQueue(ctx, inspect.Purge{Queue: "mail", DryRun: true})
	fmt.Println(would.Done, "would be deleted", err)
	done, err := api.PurgeQueue(ctx, inspect.Purge{Queue: "mail"})
	fmt.Println(done.Done, "were deleted", err)
	log, err := api.ListAudit(ctx, inspect.AuditQuery{})
	for _, e := range log.Entries {
		fmt.Println(e.Who, e.Do, e.Target, e.Done, err)
	}
	_, err = api.PurgeQueue(ctx, inspect.Purge{Queue: "letters"})
	fmt.Println(errors.Is(err, inspect.ErrNotFound), inspect.CodeOf(err))
	// Output:
	// 3 would be deleted <nil>
	// 3 were deleted <nil>
	// ada purge-queue mail 3 <nil>
	// true not_found
}

// A drop of dead letters that are not named by their ids needs the name of the queue: a pattern may
// match more than was meant.
func ExampleLocal_DropDead() {
	ctx := context.Background()
	swarm, err := open.Open(ctx, "mem://", open.Options{Control: true})
	if err != nil {
		panic(err)
	}
	defer func() { _ = swarm.Close(ctx) }()
	letters, err := deadletter.New(deadletter.Config{Broker: swarm.Broker})
	if err != nil {
		panic(err)
	}
	const exported = `{"swarmiji_dead":1,"queue":"mail","reason":"no such mailbox","message":{"v":1,"id":"m-1","contentType":"application/json","body":"e30="}}`
	if _, err := letters.Import(ctx, "mail", strings.NewReader(exported)); err != nil {
		panic(err)
	}

	api, err := open.Inspector(swarm, inspect.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	drop := inspect.DeadChange{DeadFilter: inspect.DeadFilter{Queue: "mail", Error: "mailbox"}}
	_, err = api.DropDead(ctx, drop)
	fmt.Println(inspect.CodeOf(err))
	drop.Confirm = "mail"
	done, err := api.DropDead(ctx, drop)
	fmt.Println(done.Done, err)
	// Output:
	// invalid
	// 1 <nil>
}

// A call is sent twice, as by a double click. The key makes it one: both name the same copy.
func ExampleLocal_RunTask() {
	ctx := context.Background()
	swarm, err := open.Open(ctx, "mem://", open.Options{Control: true})
	if err != nil {
		panic(err)
	}
	defer func() { _ = swarm.Close(ctx) }()
	p, err := swarm.Producer(producer.Config{Router: router.Static("mail")})
	if err != nil {
		panic(err)
	}
	defer func() { _ = p.Close(ctx) }()
	welcome := task.New[string, string]("mail.welcome")
	if _, err := welcome.Submit(ctx, p, "ada@example.com", task.WithID("welcome-ada"), task.WithDelay(time.Hour)); err != nil {
		panic(err)
	}

	api, err := open.Inspector(swarm, inspect.Config{Queues: []string{"mail"}, Listen: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	again := inspect.TaskRun{ID: "welcome-ada", Key: "form-4711"}
	first, err := api.RunTask(ctx, again)
	if err != nil {
		panic(err)
	}
	second, err := api.RunTask(ctx, again)
	if err != nil {
		panic(err)
	}
	fmt.Println(first.Repeated, second.Repeated, first.Copy == second.Copy)
	mail, err := api.GetQueue(ctx, "mail")
	fmt.Println(mail.Ready, "is due,", mail.Delayed, "is delayed", err)
	// Output:
	// false true true
	// 1 is due, 1 is delayed <nil>
}

// A program reports a change that the API does not have. It is in the audit log beside the others.
func ExampleLocal_Report() {
	ctx := inspect.WithActor(context.Background(), "nightly-restore")
	swarm, err := open.Open(ctx, "mem://", open.Options{Control: true})
	if err != nil {
		panic(err)
	}
	defer func() { _ = swarm.Close(ctx) }()
	api, err := open.Inspector(swarm, inspect.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	api.Report(ctx, inspect.Change{Do: inspect.DoImportDead, Target: "mail", Done: 12}, map[string]string{"file": "mail.jsonl"}, nil)
	log, err := api.ListAudit(ctx, inspect.AuditQuery{})
	for _, e := range log.Entries {
		fmt.Println(e.Who, e.Do, e.Target, e.Done, e.Detail, err)
	}
	// Output:
	// nightly-restore import-dead mail 12 {"file":"mail.jsonl"} <nil>
}
