//go:build !race

package redisschedule_test

// many is the number of entries that are due together.
const many = 10_000
