// Package natsschedule keeps a schedule in NATS: one stream for a schedule, one message for an entry, on
//
//	swj.schedule.<schedule>.<entry>
//
// where <schedule> is "n-" and the name, or "h-" and its SHA-1 in hex if the name has characters that a subject must not have, and
// <entry> is "i" and the id, or "h" and the id's bytes in hex. The message's data are the payload's bytes, and then those of
// what the entry carries. Its header Swj-Entry is a JSON object: id, size of the payload, next, paused, last, and the claims with
// due, owner and until; times are milliseconds since 1970. A message whose header has "gone" marks an entry that was removed; the
// server takes it away a minute later.
//
// An entry is changed by publishing its message anew with the sequence of the one that was read (Nats-Expected-Last-Subject-Sequence): of
// all who try one succeeds, and the others look again. So what is one step of the port is one message; only what a run carries for
// another entry is a message of its own, stored before the run's claim ends, and stored again if a crash lies in between.
//
// Each process keeps a copy of the schedule in memory, some hundred bytes for an entry besides its payload, in the order in which things
// become due. The stream tells it of all changes, and a call waits until the copy has all that the stream had when the call began.
//
// The clock is that of the server that leads the stream; with servers before 2.10, which do not tell it, it is the process's own.
package natsschedule
