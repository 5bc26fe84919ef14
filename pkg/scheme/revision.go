package scheme

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Field tags that all API types share: the object metadata is field 1 of its
// message, and resourceVersion is field 6 of the metadata.
const (
	tagMetadata        = 1<<3 | 2
	tagResourceVersion = 6<<3 | 2
)

// WithRevision returns a copy of a bare protobuf message with another
// resourceVersion in its metadata, without decoding the message. It converts
// between stored values, whose resourceVersion is "", and what clients receive.
func WithRevision(bare []byte, resourceVersion string) ([]byte, error) {
	meta, rest, err := cutField(bare, tagMetadata)
	if err != nil {
		return nil, err
	}
	from, to, err := findField(meta, tagResourceVersion)
	if err != nil {
		return nil, err
	}
	field := make([]byte, 0, 2+binary.MaxVarintLen64+len(resourceVersion))
	field = append(field, tagResourceVersion)
	field = binary.AppendUvarint(field, uint64(len(resourceVersion)))
	field = append(field, resourceVersion...)

	size := len(meta) - (to - from) + len(field)
	out := make([]byte, 0, 1+binary.MaxVarintLen64+size+len(rest))
	out = append(out, tagMetadata)
	out = binary.AppendUvarint(out, uint64(size))
	out = append(out, meta[:from]...)
	out = append(out, field...)
	out = append(out, meta[to:]...)
	return append(out, rest...), nil
}

// cutField splits a message that begins with the length-delimited field tag into
// the content of that field and the rest.
func cutField(msg []byte, tag byte) (content, rest []byte, err error) {
	if len(msg) == 0 || msg[0] != tag {
		return nil, nil, fmt.Errorf("protobuf message does not begin with field %d", tag>>3)
	}
	n, w := binary.Uvarint(msg[1:])
	if w <= 0 || n > uint64(len(msg)-1-w) {
		return nil, nil, errTruncated
	}
	return msg[1+w : 1+w+int(n)], msg[1+w+int(n):], nil
}

var errTruncated = errors.New("protobuf message is truncated")

// findField returns the position of the length-delimited field tag in a message, or
// where to insert it if it is absent.
func findField(msg []byte, tag byte) (from, to int, err error) {
	for pos := 0; pos < len(msg); {
		start := pos
		key, w := binary.Uvarint(msg[pos:])
		if w <= 0 {
			return 0, 0, errTruncated
		}
		pos += w
		if key>>3 > uint64(tag>>3) {
			return start, start, nil
		}
		switch key & 7 {
		case 0:
			_, w := binary.Uvarint(msg[pos:])
			if w <= 0 {
				return 0, 0, errTruncated
			}
			pos += w
		case 1:
			pos += 8
		case 2:
			n, w := binary.Uvarint(msg[pos:])
			if w <= 0 || n > uint64(len(msg)-pos-w) {
				return 0, 0, errTruncated
			}
			pos += w + int(n)
		case 5:
			pos += 4
		default:
			return 0, 0, fmt.Errorf("protobuf message has a field of wire type %d", key&7)
		}
		if pos > len(msg) {
			return 0, 0, errTruncated
		}
		if key == uint64(tag) {
			return start, pos, nil
		}
	}
	return len(msg), len(msg), nil
}

// ProtoMetadata returns the metadata of a bare protobuf message, itself a message.
// It shares memory with bare.
func ProtoMetadata(bare []byte) ([]byte, error) {
	meta, _, err := cutField(bare, tagMetadata)
	return meta, err
}
