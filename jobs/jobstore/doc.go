// Package jobstore holds the records that a store of jobs keeps beside the jobs, and the part of a
// transaction that reads and writes them: answers that came early, and tasks that wait for an
// answer.
package jobstore
