package budget

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
)

// maxTrackWork limits the cost of tracking field ownership. Field sets are
// sorted lists, so inserting one of n siblings moves up to n others: 20,000
// siblings take a few tenths of a second.
const maxTrackWork = 20_000 * 20_000

// FewFields is the size of a message, in bytes, up to which TrackWork always
// returns nil.
const FewFields = 64 << 10

// TrackWork returns a 413 error for a protobuf message, without its envelope,
// that has too many sibling fields to track their owners in acceptable time.
func TrackWork(bare []byte) error {
	if len(bare) <= FewFields {
		return nil
	}
	return trackError(siblings(bare, 0))
}

// TrackTreeWork is TrackWork for an applied configuration.
func TrackTreeWork(tree map[string]any) error { return trackError(treeSiblings(tree)) }

// TrackFields returns a 413 error for managed fields, as FieldsV1, that are too many
// to be decoded in acceptable time if they are not in order.
func TrackFields(raw []byte) error {
	n := bytes.Count(raw, []byte{'{'})
	return trackError(n * n)
}

func trackError(work int) error {
	if work > maxTrackWork {
		return tooLarge("more than 20000 fields beside each other cannot be tracked")
	}
	return nil
}

// siblings returns the sum of the squares of how often each field is repeated,
// over all depths.
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

// treeSiblings returns the sum of the squares of the lengths of maps and lists,
// over all depths.
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

// ManagedSize returns a lower bound, in bytes, of the managed fields of an
// applied configuration: a name, braces and quotes for each key. Lists and the
// object's status may not be tracked and do not count.
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
