// Package lanes shares a queue fairly over brokers that cannot hold the messages of one key back.
//
// Each priority level of a fair queue has four lanes, and each lane is a queue of the broker. The
// publishing process chooses the lane by the number of recent submissions of the key, see
// [Counter]. A key with few submissions is in lane 0, and a backlog is in lane 3. Consumers give
// the lanes turns, see [Turns], so that the first tasks of a key pass the backlog of another.
//
// Nothing is stored for a key on the server, and no call makes a further round trip. Retries,
// delays and releases keep the lane, which stands in a header of the message.
package lanes

// Count is the number of lanes of a priority level.
const Count = 4
