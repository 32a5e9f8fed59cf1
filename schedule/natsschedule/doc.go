// Package natsschedule stores a schedule in NATS JetStream: one stream for each schedule, and one
// message for each entry. An entry's message has this subject:
//
//	swj.schedule.<schedule>.<entry>
//
// <schedule> is "n-" and the schedule's name. If a subject cannot contain the name, it is "h-" and
// the name's SHA-1 in hex. <entry> is "i" and the entry's id. If a subject cannot contain the id,
// it is "h" and the id's bytes in hex.
//
// The data of a message are the payload's bytes, followed by the bytes of the carried state. The
// header Swj-Entry is a JSON object. It holds the id, the size of the payload, next, paused, last,
// and the claims with due, owner and until. Times are milliseconds since 1970. "gone" in the header
// marks a removed entry; the server deletes such a message after a minute.
//
// A group of entries has one message, with the header Swj-Group. Its subject ends with "g" and the
// group's name in hex. Its data are a JSON object with the name, the revision and the ids of the
// entries. A change of a group first stores this message. Then each of its steps checks that the
// group has no higher revision, so that a process that was overtaken changes nothing more.
//
// A change publishes a new message for the entry, with the sequence of the message that it replaces
// (Nats-Expected-Last-Subject-Sequence). If several processes change an entry at the same time, one
// succeeds, and the others read the entry again. So one step of the port is one message.
//
// There is one exception: a state that a run stores for another entry is a second message. It is
// stored before the claim of the run ends, and stored again if the process crashes in between.
//
// Each process keeps a copy of the schedule in memory, sorted by due time. It needs a few hundred
// bytes for each entry, plus the payload. The stream sends all changes to the copy. Each call waits
// until the copy has all changes that the stream had when the call began.
//
// The clock is that of the server that leads the stream. Servers before 2.10 do not send their
// time. With such a server the clock is that of the process.
package natsschedule
