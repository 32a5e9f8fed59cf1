//go:build race

package redisschedule_test

// many is the number of entries that are due together. The race detector makes each much slower.
const many = 2_000
