package scheme

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// OpenProto splits a protobuf body into the kind that it names and the bare
// message, which shares memory with data.
func OpenProto(data []byte) (gvk schema.GroupVersionKind, bare []byte, err error) {
	rest, ok := bytes.CutPrefix(data, protoMagic)
	if !ok {
		return gvk, nil, errors.New("provided data does not appear to be a protobuf message, expected prefix " + fmt.Sprintf("% x", protoMagic))
	}
	err = eachField(rest, func(number uint64, content []byte) error {
		switch number {
		case 1:
			var apiVersion, kind string
			err := eachField(content, func(number uint64, content []byte) error {
				switch number {
				case 1:
					apiVersion = string(content)
				case 2:
					kind = string(content)
				}
				return nil
			})
			if err != nil {
				return err
			}
			gv, err := schema.ParseGroupVersion(apiVersion)
			gvk = gv.WithKind(kind)
			return err
		case 2:
			bare = content
		}
		return nil
	})
	return gvk, bare, err
}

// eachField calls f with every field of a message. It returns an error for fields
// that are not length-delimited.
func eachField(msg []byte, f func(number uint64, content []byte) error) error {
	for len(msg) > 0 {
		key, w := binary.Uvarint(msg)
		if w <= 0 {
			return errTruncated
		}
		if key&7 != 2 {
			return fmt.Errorf("protobuf envelope has a field of wire type %d", key&7)
		}
		n, v := binary.Uvarint(msg[w:])
		if v <= 0 || n > uint64(len(msg)-w-v) {
			return errTruncated
		}
		if err := f(key>>3, msg[w+v:w+v+int(n)]); err != nil {
			return err
		}
		msg = msg[w+v+int(n):]
	}
	return nil
}
