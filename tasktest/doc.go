// Package tasktest tests programs that submit and handle tasks, without a server and without
// waiting.
//
// Run makes a swarm in memory inside a testing/synctest bubble. A test starts its consumers in it
// and submits tasks, as the program does. Tasks take the same path as over a real broker. Delays,
// retries, schedules and time limits pass at once. The clock of a bubble stands still while a
// goroutine runs, and jumps while all of them wait:
//
//	func TestWelcome(t *testing.T) {
//		tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
//			s.Start(consumer.Config{}, register)
//			if _, err := signUp.Submit(t.Context(), s, "ada@example.org"); err != nil {
//				t.Fatal(err)
//			}
//			s.DrainAll()
//			tasktest.RequireSubmitted(t, s, sendMail, tasktest.Like(Mail{To: "ada@example.org"}))
//		})
//	}
//
// The functions for each test:
//
//   - One call of one handler: [Work] returns its result, error, state, delay, events and
//     submissions.
//   - Several tasks together: [Swarm.Start], then [Swarm.Drain], [Swarm.DrainAll] or
//     [Swarm.Advance].
//   - Submissions: [RequireSubmitted], [RequireNotSubmitted] and [Submitted].
//   - Repetition after a crash: [Consumer.CrashAt], [Crash] and [Consumer.Crash].
//   - Code that only submits: a [Fake].
//
// A handler that runs for 5 seconds after the end of its context fails the test.
//
// # Inside a bubble
//
// Package testing/synctest has the rules of bubbles. The most important ones here:
//
//   - The time is 2000-01-01 00:00:00 UTC at first.
//   - All goroutines of the bubble must end before the test does. New closes the swarm for that.
//   - Network connections, processes and mutexes of other goroutines do not let the clock jump. Use
//     fakes that wait by channels and timers.
//   - t.Run and t.Parallel cannot be used. Call Run once for each subtest.
//   - A Meter of go-metrics starts a goroutine for the whole process: use Counter and Gauge only.
package tasktest
