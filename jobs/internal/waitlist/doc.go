// Package waitlist implements waiting for due jobs. Callers that ask for the same jobs form a
// group, so that many callers cost one transaction. A watcher learns from the store when jobs
// become due, and wakes the matching groups.
package waitlist
