// Package waitlist holds the callers that wait for jobs. Callers that ask for the same jobs form
// one group, so that many callers cost one transaction. A watcher learns from the store when jobs
// become due, and wakes the right groups.
package waitlist
