package serializer

// Wire says how tasks and results become bytes, for all who read and write them: producers,
// consumers, and tools that show messages. The zero value writes msgpack, reads every format of
// this module, and neither seals nor compresses.
type Wire struct {
	// Serializers turn arguments and results into bytes. The first one writes, all read. nil:
	// msgpack, JSON and raw bytes.
	Serializers []Serializer
	// Formats turn whole tasks into messages. The first one writes; a message is read by the first
	// that knows it. nil: msgpack.Compact, [JSONFormat], [RawFormat].
	Formats []Format
	// QueueFormats names queues whose messages are written in another format.
	QueueFormats map[string]Format
	// Sealer seals and opens tasks and results, see docs/security.md. nil: nothing is sealed, and
	// tasks that are sealed go to the dead letters.
	Sealer Sealer
	// AcceptPlain takes what is not sealed too, while other processes are being moved to sealing.
	// False: with a Sealer, a plain task goes to the dead letters, and a plain result is an error,
	// [ErrNotSealed].
	AcceptPlain bool
	// Compression says how arguments and results are compressed. The zero value: not at all. What is
	// compressed with zstd, s2 or gzip is always read.
	Compression Compression
	// MaxBody is the largest message in bytes that is sent or read. 0: 1 MiB.
	MaxBody int
}
