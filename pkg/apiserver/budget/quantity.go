package budget

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The limits of the text of a quantity. Parsing and comparing a quantity takes time
// that grows with the number that its exponent or its digits stand for: 1e-999999999
// takes minutes.
const (
	maxQuantityDigits = 100
	exponentDigits    = 3
)

// QuantitiesJSON returns an error if data, which is to be decoded into obj, holds a
// quantity that takes long to parse. obj is a pointer to a Go type of the API.
func QuantitiesJSON(data []byte, obj any) error {
	if !hasLongNumber(data) {
		return nil
	}
	in := json.NewDecoder(bytes.NewReader(data))
	in.UseNumber()
	err := jsonQuantities{in, map[reflect.Type]map[string]reflect.Type{}}.value(reflect.TypeOf(obj))
	if errors.Is(err, errSyntax) {
		return nil // the decoder reports the error
	}
	return err
}

// QuantitiesTree is QuantitiesJSON for decoded JSON.
func QuantitiesTree(tree map[string]any, obj any) error {
	if !treeHasLongNumber(tree) {
		return nil
	}
	data, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	return QuantitiesJSON(data, obj)
}

// QuantitiesProto is QuantitiesJSON for a protobuf message.
func QuantitiesProto(data []byte, obj any) error {
	if !hasLongNumber(data) {
		return nil
	}
	return protoQuantities{}.message(reflect.TypeOf(obj), data)
}

// hasLongNumber reports whether data may hold a number over the limits. Most bodies
// do not, and need no further look.
func hasLongNumber[T string | []byte](data T) bool {
	digits := 0
	for i := range len(data) {
		c := data[i]
		if c >= '0' && c <= '9' || c == '.' {
			if digits++; digits > maxQuantityDigits {
				return true
			}
			continue
		}
		if digits > 0 && c|0x20 == 'e' && longExponent(data[i+1:]) {
			return true
		}
		digits = 0
	}
	return false
}

// longExponent reports whether text begins with an exponent of too many digits.
func longExponent[T string | []byte](text T) bool {
	if len(text) > 0 && (text[0] == '-' || text[0] == '+') {
		text = text[1:]
	}
	n := 0
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	return n > exponentDigits
}

func treeHasLongNumber(v any) bool {
	switch v := v.(type) {
	case string:
		return hasLongNumber(v)
	case map[string]any:
		for _, child := range v {
			if treeHasLongNumber(child) {
				return true
			}
		}
	case []any:
		for _, child := range v {
			if treeHasLongNumber(child) {
				return true
			}
		}
	}
	return false
}

var quantityType = reflect.TypeFor[resource.Quantity]()

func checkQuantity(text string) error {
	if !hasLongNumber(text) {
		return nil
	}
	if len(text) > 32 {
		text = text[:32] + "…"
	}
	return fmt.Errorf("quantity %q: at most %d digits and an exponent of at most %d digits are read", text, maxQuantityDigits, exponentDigits)
}

// jsonQuantities checks JSON token by token, so that it sees every value of a key that
// occurs twice. It maps Go types to their fields by name.
type jsonQuantities struct {
	in     *json.Decoder
	byType map[reflect.Type]map[string]reflect.Type
}

var errSyntax = errors.New("not JSON")

// value checks the next value, which is to become a t; nil: a type without quantities.
func (j jsonQuantities) value(t reflect.Type) error {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	token, err := j.in.Token()
	if err != nil {
		return errSyntax
	}
	switch v := token.(type) {
	case json.Delim:
		return j.children(t, v)
	case string:
		if t == quantityType {
			return checkQuantity(v)
		}
	case json.Number:
		if t == quantityType {
			return checkQuantity(v.String())
		}
	}
	return nil
}

// children checks the rest of an object or a list, after its opening delimiter.
func (j jsonQuantities) children(t reflect.Type, open json.Delim) error {
	for j.in.More() {
		child := elementOf(t)
		if open == '{' {
			key, err := j.in.Token()
			if err != nil {
				return errSyntax
			}
			if t != nil && t.Kind() == reflect.Struct {
				child = j.fields(t)[key.(string)]
			}
		}
		if err := j.value(child); err != nil {
			return err
		}
	}
	if _, err := j.in.Token(); err != nil {
		return errSyntax
	}
	return nil
}

// elementOf returns the type of the values of a map or a slice; nil for others.
func elementOf(t reflect.Type) reflect.Type {
	if t != nil && (t.Kind() == reflect.Map || t.Kind() == reflect.Slice) {
		return t.Elem()
	}
	return nil
}

// fields returns the types of the fields of a struct by their names in JSON.
func (j jsonQuantities) fields(t reflect.Type) map[string]reflect.Type {
	if fields, ok := j.byType[t]; ok {
		return fields
	}
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct {
			maps.Copy(fields, j.fields(f.Type))
		} else if name != "" {
			fields[name] = f.Type
		}
	}
	j.byType[t] = fields
	return fields
}

// protoQuantities checks messages. It maps Go types to their fields by number.
type protoQuantities map[reflect.Type]map[protowire.Number]reflect.Type

// message checks a message of the Go type t.
func (p protoQuantities) message(t reflect.Type, data []byte) error {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
		return nil
	}
	fields := p.fields(t)
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil // the decoder reports the error
		}
		data = data[n:]
		n = protowire.ConsumeFieldValue(number, kind, data)
		if n < 0 {
			return nil
		}
		value := data[:n]
		data = data[n:]
		field := fields[number]
		if kind != protowire.BytesType || field == nil {
			continue
		}
		value, _ = protowire.ConsumeBytes(value)
		if t == quantityType {
			if err := checkQuantity(string(value)); err != nil {
				return err
			}
		} else if err := p.message(field, value); err != nil {
			return err
		}
	}
	return nil
}

// fields returns the types of the fields of a message: of a struct by the numbers in
// its tags, of the entry of a map as protobuf defines it.
func (p protoQuantities) fields(t reflect.Type) map[protowire.Number]reflect.Type {
	if fields, ok := p[t]; ok {
		return fields
	}
	fields := map[protowire.Number]reflect.Type{}
	switch {
	case t == quantityType:
		fields[1] = reflect.TypeFor[string]()
	case t.Kind() == reflect.Map:
		fields[2] = t.Elem()
	default:
		for i := range t.NumField() {
			parts := strings.Split(t.Field(i).Tag.Get("protobuf"), ",")
			if len(parts) < 2 {
				continue
			}
			if n, err := strconv.Atoi(parts[1]); err == nil {
				fields[protowire.Number(n)] = t.Field(i).Type
			}
		}
	}
	p[t] = fields
	return fields
}
