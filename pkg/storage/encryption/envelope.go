package encryption

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Maximum sizes in bytes, as upstream, of what is stored beside an encrypted value.
const (
	maxKeyID       = 1 << 10
	maxSource      = 1 << 10
	maxAnnotations = 32 << 10
)

// envelope is what a KMS provider stores: upstream's message EncryptedObject
// (package v2 of the KMS v2 envelope). The numbers are those of the fields.
type envelope struct {
	data        []byte            // 1: the value, encrypted with the seed or key in source
	keyID       string            // 2: identifies the key of the plugin
	source      []byte            // 3: seed or key, encrypted by the plugin
	annotations map[string][]byte // 4: opaque data of the plugin
	sourceType  uint64            // 5
}

// Types of the source: an AES-GCM key, which upstream wrote before 1.28, or the
// seed from which the key of each value is derived.
const (
	sourceKey  = 0
	sourceSeed = 1
)

// encode returns the message with its fields in upstream's order.
func (e *envelope) encode() []byte {
	out := make([]byte, 0, len(e.data)+len(e.keyID)+len(e.source)+64)
	out = appendBytes(out, 1, e.data)
	out = appendBytes(out, 2, []byte(e.keyID))
	out = appendBytes(out, 3, e.source)
	for _, name := range slices.Sorted(maps.Keys(e.annotations)) {
		out = appendBytes(out, 4, appendBytes(appendBytes(nil, 1, []byte(name)), 2, e.annotations[name]))
	}
	if e.sourceType != 0 {
		out = protowire.AppendVarint(protowire.AppendTag(out, 5, protowire.VarintType), e.sourceType)
	}
	return out
}

func appendBytes(out []byte, field protowire.Number, data []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(out, field, protowire.BytesType), data)
}

// parseEnvelope parses and validates the message. The result shares memory with in.
func parseEnvelope(in []byte) (*envelope, error) {
	e := &envelope{}
	err := eachField(in, func(n protowire.Number, data []byte, number uint64) error {
		switch n {
		case 1:
			e.data = data
		case 2:
			e.keyID = string(data)
		case 3:
			e.source = data
		case 4:
			return e.annotate(data)
		case 5:
			e.sourceType = number
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return e, e.validate()
}

func (e *envelope) annotate(entry []byte) error {
	var name string
	var value []byte
	err := eachField(entry, func(n protowire.Number, data []byte, _ uint64) error {
		switch n {
		case 1:
			name = string(data)
		case 2:
			value = data
		}
		return nil
	})
	if e.annotations == nil {
		e.annotations = map[string][]byte{}
	}
	e.annotations[name] = value
	return err
}

// eachField calls f with every field of a message. data is set for bytes, number
// for varints.
func eachField(in []byte, f func(n protowire.Number, data []byte, number uint64) error) error {
	for len(in) > 0 {
		n, kind, size := protowire.ConsumeTag(in)
		if size < 0 {
			return fmt.Errorf("read the envelope: %w", protowire.ParseError(size))
		}
		in = in[size:]
		var data []byte
		var number uint64
		switch kind {
		case protowire.BytesType:
			data, size = protowire.ConsumeBytes(in)
		case protowire.VarintType:
			number, size = protowire.ConsumeVarint(in)
		default:
			size = protowire.ConsumeFieldValue(n, kind, in)
		}
		if size < 0 {
			return fmt.Errorf("read the envelope: %w", protowire.ParseError(size))
		}
		in = in[size:]
		if err := f(n, data, number); err != nil {
			return err
		}
	}
	return nil
}

func (e *envelope) validate() error {
	if e.sourceType != sourceKey && e.sourceType != sourceSeed {
		return fmt.Errorf("unknown encryptedDEKSourceType: %d", e.sourceType)
	}
	if len(e.data) == 0 {
		return errors.New("encrypted data is empty")
	}
	return errors.Join(validateKeyID(e.keyID), validateSource(e.source), validateAnnotations(e.annotations))
}

func validateKeyID(id string) error {
	switch {
	case id == "":
		return errors.New("keyID is empty")
	case len(id) > maxKeyID:
		return fmt.Errorf("keyID is %d bytes, which exceeds the max size of %d", len(id), maxKeyID)
	}
	return nil
}

func validateSource(source []byte) error {
	switch {
	case len(source) == 0:
		return errors.New("encrypted DEK source is empty")
	case len(source) > maxSource:
		return fmt.Errorf("encrypted DEK source is %d bytes, which exceeds the max size of %d", len(source), maxSource)
	}
	return nil
}

func validateAnnotations(annotations map[string][]byte) error {
	var errs field.ErrorList
	size := 0
	for name, value := range annotations {
		errs = append(errs, validation.IsFullyQualifiedDomainName(field.NewPath("annotations"), name)...)
		size += len(name) + len(value)
	}
	if size > maxAnnotations {
		return fmt.Errorf("total size of annotations is %d, which exceeds the max size of %d", size, maxAnnotations)
	}
	if len(errs) > 0 {
		return errs.ToAggregate()
	}
	return nil
}
