//go:build race

package redisschedule_test

// many is how many entries are due together; the race detector makes each ten times as dear.
const many = 2_000
