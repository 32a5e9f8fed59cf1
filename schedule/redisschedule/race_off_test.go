//go:build !race

package redisschedule_test

// many is how many entries are due together.
const many = 10_000
