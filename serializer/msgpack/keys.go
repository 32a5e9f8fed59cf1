package msgpack

// Keys of an envelope in Compact. They are part of the wire format: a key is never reused for
// another field. A reader keeps pairs with unknown keys up to 127.
const (
	keyVersion     = 0  // integer
	keyID          = 1  // bin of 16 bytes for a UUID, else str
	keyName        = 2  // str
	keyArgs        = 3  // bin
	keyContentType = 4  // integer: one of contentCodes; else str
	keySentAt      = 5  // integer, milliseconds since 1970
	keyOrigin      = 6  // str
	keyReplyTo     = 7  // true: the same as origin; else str
	keyRoot        = 8  // as id; omitted if equal to id
	keyParent      = 9  // as id
	keyGroup       = 10 // as id
	keyGroupIndex  = 11 // integer
	keyRetries     = 12 // integer
	keyCrashes     = 13 // integer
	keyParked      = 14 // integer
	keyCorrelation = 15 // str
	keyHeaders     = 16 // map of str to str
	keyLinks       = 17 // array of links, each a map with the keys below
	keyBase        = 18 // map with metadata keys

	keyGroupSize = 24 // integer
	keyCopy      = 25 // str
	keyLife      = 26 // integer
	keyBurst     = 27 // str

	// Metadata are stored beside the envelope's own keys, so that unknown ones are kept too.
	keyQueue          = 32 // str
	keyMaxRetries     = 33 // integer
	keyRetryDelay     = 34 // integer, milliseconds
	keyRateLimit      = 35 // str
	keyTimeLimit      = 36 // integer, milliseconds
	keySoftTimeLimit  = 37 // integer, milliseconds
	keyIgnoreResult   = 38 // boolean
	keyIdempotent     = 39 // boolean
	keySerializer     = 40 // as content type
	keyResultStore    = 41 // str
	keyResultTTL      = 42 // integer, milliseconds
	keyPriority       = 43 // integer
	keyNotBefore      = 44 // integer, milliseconds since 1970; nil: explicitly not set
	keyExpires        = 45 // as not before
	keyCompression    = 46 // str
	keyRetry          = 47 // str
	keyDeadLetter     = 48 // boolean
	keyFairnessKey    = 49 // str
	keyFairnessWeight = 50 // integer

	// A link has id, name, args, content type, group, group index, group size, metadata and these
	// keys.
	keyLinkQueue = 64 // str
	keyLinkFeed  = 65 // str
	keyLinkField = 66 // str
	// integer: 1 + index of the parent link in the array; omitted for links of the envelope
	keyLinkOf   = 67
	keyLinkKind = 68 // integer: one of the kinds; omitted for linkThen

	// The reply address of a link has the envelope's key and is always a str.
	keyLinkPolicy = 70 // str
	keyLinkEach   = 71 // true; omitted for false
	keyLinkLast   = 72 // true; omitted for false
	// array of str; headers and correlation of a link have the envelope's keys
	keyLinkWithout = 73
)

// Kinds of links. The array of links is flat, with parents before their successors. So the length
// of a chain is not limited by the nesting that readers allow.
const (
	linkThen  = 0
	linkElse  = 1
	linkChord = 2 // of the envelope

	linkMember   = 3 // of a group
	linkCallback = 4 // the chord of a link
)
