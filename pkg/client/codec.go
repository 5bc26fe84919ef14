package client

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/scheme"
)

// Field numbers that all lists, envelopes and watch events share.
const (
	listMetaField  = 1
	listItemsField = 2

	envelopeTypeField = 1 // runtime.Unknown
	envelopeRawField  = 2

	watchTypeField   = 1 // metav1.WatchEvent
	watchObjectField = 2
	rawField         = 1 // runtime.RawExtension
)

const protoMagic = "k8s\x00"

type unmarshaler interface{ Unmarshal([]byte) error }

func mediaType(h http.Header) string {
	m, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return m
}

// decodeInto decodes one object into out. It fails if the object is of another kind.
func (c *Client) decodeInto(data []byte, media string, out runtime.Object) error {
	want, err := c.scheme.GVKOf(out)
	if err != nil {
		return err
	}
	switch media {
	case scheme.Protobuf:
		kind, raw, err := openEnvelope(data)
		if err != nil {
			return fmt.Errorf("decode %s: %w", want.Kind, err)
		}
		if kind != want.Kind {
			return fmt.Errorf("decode %s: the server sent a %s", want.Kind, kind)
		}
		return unmarshal(raw, out)
	default: // JSON, or no content type
		obj, gvk, err := c.scheme.Decode(data, scheme.JSON, &want)
		if err != nil {
			return fmt.Errorf("decode %s: %w", want.Kind, err)
		}
		if gvk.Kind != want.Kind {
			return fmt.Errorf("decode %s: the server sent a %s", want.Kind, gvk.Kind)
		}
		return assign(out, obj)
	}
}

func unmarshal(raw []byte, out runtime.Object) error {
	m, ok := out.(unmarshaler)
	if !ok {
		return fmt.Errorf("decode %T: the type has no protobuf form", out)
	}
	if err := m.Unmarshal(raw); err != nil {
		return fmt.Errorf("decode %T: %w", out, err)
	}
	return nil
}

// openEnvelope splits a protobuf body into its kind and the encoded message.
func openEnvelope(data []byte) (kind string, raw []byte, err error) {
	if !bytes.HasPrefix(data, []byte(protoMagic)) {
		return "", nil, errors.New("the body does not begin as a protobuf object")
	}
	err = fields(data[len(protoMagic):], func(n protowire.Number, b []byte) error {
		switch n {
		case envelopeTypeField:
			var t runtime.TypeMeta
			if err := t.Unmarshal(b); err != nil {
				return err
			}
			kind = t.Kind
		case envelopeRawField:
			raw = b
		}
		return nil
	})
	return kind, raw, err
}

// fields calls f with each length-delimited field of a message and skips the others.
// The slices alias msg.
func fields(msg []byte, f func(protowire.Number, []byte) error) error {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return protowire.ParseError(n)
		}
		msg = msg[n:]
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, msg); n < 0 {
				return protowire.ParseError(n)
			}
			msg = msg[n:]
			continue
		}
		b, n := protowire.ConsumeBytes(msg)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := f(num, b); err != nil {
			return err
		}
		msg = msg[n:]
	}
	return nil
}

// decodeList decodes a list. Each item is allocated separately, so that keeping one
// item does not keep the memory of the others.
func decodeList[T scheme.Object](c *Client, data []byte, media string) (*List[T], error) {
	kind := scheme.KindOf[T](c.scheme)
	if media != scheme.Protobuf {
		list := kind.NewList()
		if err := c.decodeInto(data, media, list); err != nil {
			return nil, err
		}
		return splitList[T](list)
	}
	name, raw, err := openEnvelope(data)
	if err != nil {
		return nil, fmt.Errorf("decode %sList: %w", kind.Kind, err)
	}
	if name != kind.Kind+"List" {
		return nil, fmt.Errorf("decode %sList: the server sent a %s", kind.Kind, name)
	}
	list := &List[T]{Items: []T{}}
	err = fields(raw, func(n protowire.Number, b []byte) error {
		switch n {
		case listMetaField:
			return list.ListMeta.Unmarshal(b)
		case listItemsField:
			obj := kind.New().(T)
			list.Items = append(list.Items, obj)
			return unmarshal(b, obj)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("decode %sList: %w", kind.Kind, err)
	}
	return list, nil
}

func splitList[T scheme.Object](list runtime.Object) (*List[T], error) {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	out := &List[T]{Items: []T{}}
	out.ListMeta = metav1.ListMeta{
		ResourceVersion: m.GetResourceVersion(), Continue: m.GetContinue(),
		RemainingItemCount: m.GetRemainingItemCount(),
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		obj := item.(T)
		obj.GetObjectKind().SetGroupVersionKind(noKind)
		out.Items = append(out.Items, obj)
		return nil
	})
	return out, err
}
