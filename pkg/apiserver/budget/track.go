package budget

import "google.golang.org/protobuf/encoding/protowire"

// maxTrackWork bounds the tracking of fields. Their sets are sorted lists: one
// more of n siblings moves up to n others. 20,000 siblings take a few tenths of
// a second.
const maxTrackWork = 20_000 * 20_000

// FewFields is the size of a message up to which TrackWork finds nothing.
const FewFields = 64 << 10

// TrackWork is a 413 for a bare protobuf message that has so many fields beside
// each other that to track their owners takes too long.
func TrackWork(bare []byte) error {
	if len(bare) <= FewFields {
		return nil
	}
	return trackError(siblings(bare, 0))
}

// TrackTreeWork is the same for an applied configuration.
func TrackTreeWork(tree map[string]any) error { return trackError(treeSiblings(tree)) }

func trackError(work int) error {
	if work > maxTrackWork {
		return tooLarge("more than 20000 fields beside each other cannot be tracked")
	}
	return nil
}

// siblings adds up the squares of how often fields are repeated, at every depth.
func siblings(data []byte, depth int) (work int) {
	var repeated [64]int
	for len(data) > 0 && work <= maxTrackWork {
		number, kind, size := protowire.ConsumeTag(data)
		if size < 0 || number <= 0 {
			break
		}
		data = data[size:]
		if kind != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(number, kind, data); size < 0 {
				break
			}
			data = data[size:]
			continue
		}
		value, size := protowire.ConsumeBytes(data)
		if size < 0 {
			break
		}
		data = data[size:]
		repeated[number%64]++
		if depth < maxProtoDepth {
			work += siblings(value, depth+1)
		}
	}
	for _, n := range repeated {
		if n > 1 {
			work += n * n
		}
	}
	return work
}

func treeSiblings(value any) (work int) {
	switch value := value.(type) {
	case map[string]any:
		work = len(value) * len(value)
		for _, v := range value {
			work += treeSiblings(v)
		}
	case []any:
		work = len(value) * len(value)
		for _, v := range value {
			work += treeSiblings(v)
		}
	}
	return work
}

// ManagedSize is how many bytes the managed fields of an applied configuration
// take at least: a name, its braces and quotes for each key. What is in lists,
// and the object's status, may not be tracked and does not count.
func ManagedSize(tree map[string]any) (size int) {
	for name, v := range tree {
		if name == "status" {
			continue
		}
		size += len(name) + len(`"f:":{},`)
		if inner, ok := v.(map[string]any); ok {
			size += ManagedSize(inner)
		}
	}
	return size
}
