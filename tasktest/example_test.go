package tasktest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// The program under test: it welcomes new customers, and reminds them.

type Mail struct{ To, Text string }

var (
	SignUp = task.New[string, string]("customer.signup", task.WithMaxRetries(5), task.WithRetryDelay(time.Minute))
	Send   = task.New[Mail, task.None]("mail.send")
)

// Customers keeps customers. ErrLocked says: later.
type Customers interface {
	Add(ctx context.Context, address string) (number string, err error)
}

var ErrLocked = errors.New("the table is locked")

// Program holds the dependencies of the handlers.
type Program struct {
	Customers Customers
	Tasks     task.Submitter
}

func (p *Program) Register(r task.Registrar) error {
	return errors.Join(SignUp.Handle(r, p.SignUp), Send.Handle(r, p.Send))
}

func (p *Program) SignUp(ctx context.Context, address string) (string, error) {
	number, err := p.Customers.Add(ctx, address)
	if errors.Is(err, ErrLocked) {
		return "", task.Retry(err)
	}
	if err != nil {
		return "", err
	}
	r, _ := task.FromContext(ctx)
	_, err = Send.Submit(ctx, p.Tasks, Mail{To: address, Text: "Welcome!"}, task.WithID(task.Derive(r.ID, "welcome")))
	if err != nil {
		return "", err
	}
	_, err = Send.Submit(ctx, p.Tasks, Mail{To: address, Text: "Still there?"},
		task.WithID(task.Derive(r.ID, "reminder")), task.WithDelay(7*24*time.Hour))
	return number, err
}

func (p *Program) Send(context.Context, Mail) (task.None, error) { return task.None{}, nil }

// table is a fake of Customers that is locked so often.
type table struct{ locked int }

func (c *table) Add(context.Context, string) (string, error) {
	if c.locked--; c.locked >= 0 {
		return "", ErrLocked
	}
	return "C-1", nil
}

// A test of the whole program. Two retries and a week pass at once.
func ExampleRun() {
	asTest(func(t *testing.T) { // func TestSignUp(t *testing.T)
		tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
			program := &Program{Customers: &table{locked: 2}, Tasks: s}
			s.Start(consumer.Config{}, program.Register)
			future, err := SignUp.Submit(t.Context(), s, "ada@example.org")
			if err != nil {
				t.Fatal(err)
			}
			if got := s.DrainAll(); got.Retried != 2 || got.Succeeded != 3 {
				t.Errorf("got %+v", got)
			}
			if number, err := future.Get(t.Context()); number != "C-1" || err != nil {
				t.Errorf("got %q, %v", number, err)
			}
		})
	})
}

// An Example function has no t: what fails panics. Outside of a bubble time is real, and futures
// are what to wait for.
func ExampleNew() {
	s := tasktest.New(nil)
	defer s.Close()
	program := &Program{Customers: &table{}, Tasks: s}
	s.Start(consumer.Config{}, program.Register)

	ctx := context.Background()
	future, err := SignUp.Submit(ctx, s, "ada@example.org")
	if err != nil {
		panic(err)
	}
	fmt.Println(future.Get(ctx))
	// Output: C-1 <nil>
}

// One attempt of one handler, and all that it comes to.
func ExampleWork() {
	asTest(func(t *testing.T) { // func TestSignUpLocked(t *testing.T)
		tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
			program := &Program{Customers: &table{locked: 1}, Tasks: s}
			a := tasktest.Work(s, SignUp, program.SignUp, "ada@example.org")
			if a.State != task.StateRetrying || a.Delay != time.Minute || !errors.Is(a.Returned, ErrLocked) {
				t.Errorf("it is %s for %v, since %v", a.State, a.Delay, a.Returned)
			}
			tasktest.RequireNotSubmitted(t, a, Send)
		})
	})
}

// A consumer with the configuration of the program.
func ExampleSwarm_Start() {
	asTest(func(t *testing.T) { // func TestQueues(t *testing.T)
		tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
			program := &Program{Customers: &table{}, Tasks: s}
			s.Start(consumer.Config{Queues: map[string]consumer.QueueConfig{"customers": {Workers: 2}}}, program.Register)
			if _, err := SignUp.Submit(t.Context(), s, "ada@example.org", task.WithQueue("customers")); err != nil {
				t.Fatal(err)
			}
			// The mails are in the queue "default", which has no consumer here.
			if got, want := s.Drain(), (tasktest.Summary{Succeeded: 1, Delayed: 1, Unclaimed: 1}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	})
}

// A producer with the configuration of the program, here with a router of its own.
func ExampleSwarm_Producer() {
	asTest(func(t *testing.T) { // func TestRoutes(t *testing.T)
		tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
			routes, err := router.NewTable(router.TableConfig{Routes: []router.Route{{Pattern: "mail.*", Queue: "mail"}}})
			if err != nil {
				t.Fatal(err)
			}
			p := s.Producer(producer.Config{Router: routes})
			if _, err := Send.Submit(t.Context(), p, Mail{To: "ada@example.org"}); err != nil {
				t.Fatal(err)
			}
			if sent := tasktest.RequireSubmitted(t, s, Send); sent.Queue != "mail" {
				t.Errorf("it went to %s", sent.Queue)
			}
		})
	})
}

// Drain does not run tasks that wait for a time.
func ExampleSwarm_Drain() {
	asTest(func(t *testing.T) { // func TestWelcomeBeforeReminder(t *testing.T)
		tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
			program := &Program{Customers: &table{}, Tasks: s}
			s.Start(consumer.Config{}, program.Register)
			if _, err := SignUp.Submit(t.Context(), s, "ada@example.org"); err != nil {
				t.Fatal(err)
			}
			s.Drain()
			if n := len(s.Started(Send.Name())); n != 1 {
				t.Errorf("%d mails were sent, want the welcome alone", n)
			}
		})
	})
}

// DrainAll passes delays and retries.
func ExampleSwarm_DrainAll() {
	asTest(func(t *testing.T) { // func TestReminder(t *testing.T)
		tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
			program := &Program{Customers: &table{}, Tasks: s}
			s.Start(consumer.Config{}, program.Register)
			if _, err := SignUp.Submit(t.Context(), s, "ada@example.org"); err != nil {
				t.Fatal(err)
			}
			s.DrainAll()
			if n := len(s.Started(Send.Name())); n != 2 {
				t.Errorf("%d mails were sent, want 2", n)
			}
		})
	})
}

// Advance is for what depends on the time: here a retry is not early.
func ExampleSwarm_Advance() {
	asTest(func(t *testing.T) { // func TestRetryDelay(t *testing.T)
		tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
			program := &Program{Customers: &table{locked: 1}, Tasks: s}
			s.Start(consumer.Config{}, program.Register)
			if _, err := SignUp.Submit(t.Context(), s, "ada@example.org"); err != nil {
				t.Fatal(err)
			}
			if got := s.Advance(59 * time.Second); got.Succeeded != 0 {
				t.Errorf("after 59 seconds: %+v", got)
			}
			if got := s.Advance(time.Second); got.Succeeded != 2 {
				t.Errorf("after a minute: %+v", got)
			}
		})
	})
}

// The listener of this schedule submits the due tasks.
func ExampleSwarm_Listen() {
	asTest(func(t *testing.T) { // func TestDigest(t *testing.T)
		tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
			times := s.Listen(schedule.ListenerConfig{Submit: s}, func(l *schedule.Listener) error {
				return schedule.Forward(l, Send)
			})
			digest := Mail{To: "all@example.org", Text: "The week"}
			if _, err := times.Add(t.Context(), schedule.Every("Monday at 9am"), Send.Call(digest)); err != nil {
				t.Fatal(err)
			}
			s.Advance(7 * 24 * time.Hour)
			sent := tasktest.RequireSubmitted(t, s, Send, tasktest.Like(digest))
			if sent.At.Weekday() != time.Monday || sent.At.Hour() != 9 {
				t.Errorf("it was sent at %v", sent.At)
			}
		})
	})
}

// Which attempts there were.
func ExampleSwarm_Started() {
	asTest(func(t *testing.T) { // func TestAttempts(t *testing.T)
		tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
			program := &Program{Customers: &table{locked: 1}, Tasks: s}
			s.Start(consumer.Config{}, program.Register)
			if _, err := SignUp.Submit(t.Context(), s, "ada@example.org"); err != nil {
				t.Fatal(err)
			}
			s.DrainAll()
			runs := s.Started(SignUp.Name())
			if len(runs) != 2 || runs[1].Retries != 1 || runs[1].StartedAt.Sub(runs[0].StartedAt) != time.Minute {
				t.Errorf("there were %d attempts", len(runs))
			}
		})
	})
}

// Exactly one submission, by its arguments, queue and options.
func ExampleRequireSubmitted() {
	asTest(func(t *testing.T) { // func TestMails(t *testing.T)
		tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
			program := &Program{Customers: &table{}, Tasks: s}
			a := tasktest.Work(s, SignUp, program.SignUp, "ada@example.org")
			welcome := tasktest.RequireSubmitted(t, a, Send, tasktest.Like(Mail{To: "ada@example.org", Text: "Welcome!"}, task.WithQueue("default")))
			if welcome.Delay != 0 {
				t.Errorf("the welcome waits %v", welcome.Delay)
			}
			tasktest.RequireSubmitted(t, a, Send, func(m *tasktest.Submission[Mail]) bool { return m.Delay == 7*24*time.Hour })
		})
	})
}

// Like compares arguments, and what options set.
func ExampleLike() {
	asTest(func(t *testing.T) { // func TestReminderDelay(t *testing.T)
		tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
			program := &Program{Customers: &table{}, Tasks: s}
			a := tasktest.Work(s, SignUp, program.SignUp, "ada@example.org")
			reminder := Mail{To: "ada@example.org", Text: "Still there?"}
			tasktest.RequireSubmitted(t, a, Send, tasktest.Like(reminder, task.WithDelay(7*24*time.Hour)))
		})
	})
}

// No submission at all, or none that matches.
func ExampleRequireNotSubmitted() {
	asTest(func(t *testing.T) { // func TestNoSpam(t *testing.T)
		tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
			program := &Program{Customers: &table{}, Tasks: s}
			a := tasktest.Work(s, SignUp, program.SignUp, "ada@example.org")
			tasktest.RequireNotSubmitted(t, a, SignUp)
			tasktest.RequireNotSubmitted(t, a, Send, func(m *tasktest.Submission[Mail]) bool { return m.Args.To != "ada@example.org" })
		})
	})
}

// All submissions, in order.
func ExampleSubmitted() {
	asTest(func(t *testing.T) { // func TestTexts(t *testing.T)
		tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
			program := &Program{Customers: &table{}, Tasks: s}
			a := tasktest.Work(s, SignUp, program.SignUp, "ada@example.org")
			if mails := tasktest.Submitted(a, Send); len(mails) != 2 || mails[1].Args.Text != "Still there?" {
				t.Errorf("%d mails were submitted", len(mails))
			}
		})
	})
}

// A crash after the handler, before anything of it is stored. Another consumer runs the task again.
// Since the program derives the ids of its mails, they are sent once.
func ExampleConsumer_CrashAt() {
	asTest(func(t *testing.T) { // func TestCrashAfterHandler(t *testing.T)
		tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
			program := &Program{Customers: &table{}, Tasks: s}
			s.Start(consumer.Config{}, program.Register).CrashAt(tasktest.AfterHandler, SignUp.Name())
			if _, err := SignUp.Submit(t.Context(), s, "ada@example.org"); err != nil {
				t.Fatal(err)
			}
			s.Drain()
			s.Start(consumer.Config{}, program.Register)
			s.DrainAll()
			if n := len(s.Started(SignUp.Name())); n != 2 {
				t.Errorf("it ran %d times, want 2", n)
			}
			if n := len(tasktest.Submitted(s, Send)); n != 2 {
				t.Errorf("%d mails were submitted, want 2", n)
			}
		})
	})
}

// brittle is a table whose process crashes after the first change.
type brittle struct{ table }

func (b *brittle) Add(ctx context.Context, address string) (string, error) {
	number, err := b.table.Add(ctx, address)
	if r, _ := task.FromContext(ctx); r.Deliveries == 1 {
		tasktest.Crash(ctx)
	}
	return number, err
}

// A crash in the middle of a handler, where a fake is called.
func ExampleCrash() {
	asTest(func(t *testing.T) { // func TestCrashInHandler(t *testing.T)
		tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
			program := &Program{Customers: &brittle{}, Tasks: s}
			first := s.Start(consumer.Config{}, program.Register)
			if _, err := SignUp.Submit(t.Context(), s, "ada@example.org"); err != nil {
				t.Fatal(err)
			}
			s.Drain()
			if !first.Crashed() {
				t.Error("it did not crash")
			}
			tasktest.RequireNotSubmitted(t, s, Send)
			s.Start(consumer.Config{}, program.Register)
			if got := s.DrainAll(); got.Succeeded != 3 {
				t.Errorf("got %+v", got)
			}
		})
	})
}

// slow is a table that answers after an hour.
type slow struct{ table }

func (c *slow) Add(ctx context.Context, address string) (string, error) {
	select {
	case <-time.After(time.Hour):
		return c.table.Add(ctx, address)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// A crash from outside, while a handler runs.
func ExampleConsumer_Crash() {
	asTest(func(t *testing.T) { // func TestCrashMeanwhile(t *testing.T)
		tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
			program := &Program{Customers: &slow{}, Tasks: s}
			first := s.Start(consumer.Config{}, program.Register)
			if _, err := SignUp.Submit(t.Context(), s, "ada@example.org"); err != nil {
				t.Fatal(err)
			}
			s.Advance(time.Minute)
			first.Crash()
			s.Start(consumer.Config{}, program.Register)
			s.DrainAll()
			if n := len(s.Started(SignUp.Name())); n != 2 {
				t.Errorf("it ran %d times, want 2", n)
			}
		})
	})
}

// A unit that submits, without broker and bubble.
func ExampleFake() {
	tasks := &tasktest.Fake{}
	tasks.FailNext(errors.New("the broker is away"))

	ctx := context.Background()
	_, err := Send.Submit(ctx, tasks, Mail{To: "ada@example.org"})
	fmt.Println(err)
	_, err = Send.Submit(ctx, tasks, Mail{To: "ada@example.org"}, task.WithDelay(time.Hour))
	fmt.Println(err)

	for _, sent := range tasktest.Submitted(tasks, Send) {
		fmt.Println(sent.Args.To, sent.Delay.Round(time.Minute))
	}
	// Output:
	// the broker is away
	// <nil>
	// ada@example.org 1h0m0s
}

// A Fake that answers, for a unit that waits for results.
func ExampleFake_answer() {
	tasks := &tasktest.Fake{Answer: func(c task.Call) (any, error) { return "C-1", nil }}
	ctx := context.Background()
	future, err := SignUp.Submit(ctx, tasks, "ada@example.org")
	if err != nil {
		panic(err)
	}
	fmt.Println(future.Get(ctx))
	// Output: C-1 <nil>
}
