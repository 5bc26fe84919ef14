package kubeconfig

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Property is the path of a value in a kubeconfig, as kubectl config set takes it:
// "current-context", "contexts.dev.namespace", "users.dev.exec.command".
type Property struct {
	text  string
	list  List     // "" for values outside the lists
	name  string   // of the entry; "" for the whole list
	steps []string // field names below the entry, or below the file
}

// ParseProperty parses a path. The name of an entry may contain dots: it ends where a
// field of the entry begins.
func ParseProperty(text string) (Property, error) {
	parts := strings.Split(text, ".")
	p := Property{text: text, steps: parts}
	var entry reflect.Type
	switch list := List(parts[0]); list {
	case Clusters:
		p.list, entry = list, reflect.TypeFor[Cluster]()
	case Users:
		p.list, entry = list, reflect.TypeFor[User]()
	case Contexts:
		p.list, entry = list, reflect.TypeFor[Context]()
	default:
		return p, checkSteps(reflect.TypeFor[Config](), parts, text)
	}
	p.steps = nil
	if rest := parts[1:]; len(rest) > 0 {
		end := 1
		for end < len(rest) && fieldIndex(entry, rest[end]) < 0 {
			end++
		}
		p.name, p.steps = strings.Join(rest[:end], "."), rest[end:]
	}
	return p, checkSteps(entry, p.steps, text)
}

// checkSteps reports a step that is not a field.
func checkSteps(t reflect.Type, steps []string, text string) error {
	for i, step := range steps {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch t.Kind() {
		case reflect.Struct:
			index := fieldIndex(t, step)
			if index < 0 {
				return fmt.Errorf("unable to parse %v: %q is not a field of %s", text, step, t.Name())
			}
			t = t.Field(index).Type
		case reflect.Map: // the rest is the key
			return nil
		default:
			return fmt.Errorf("unable to parse one or more field values of %v: nothing can follow %q", text, strings.Join(steps[:i], "."))
		}
	}
	return nil
}

// fieldIndex returns the index of the field with a JSON name, -1 if there is none.
func fieldIndex(t reflect.Type, name string) int {
	for i := range t.NumField() {
		if tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); tag == name {
			return i
		}
	}
	return -1
}

// Set sets the property in the file that holds its entry, and adds the entry if no
// file has it. Binary values are base64, or with raw the bytes themselves.
func (f Files) Set(p Property, value string, raw bool) error {
	if p.list == "" {
		if p.steps[0] == "current-context" {
			return f.SetCurrentContext(value)
		}
		return f.edit(func(*Config) bool { return false }, func(c *Config) error {
			return assign(reflect.ValueOf(c).Elem(), p.steps, &value, raw)
		})
	}
	if len(p.steps) == 0 {
		return fmt.Errorf("can't set %s to a value: name one of its fields", p.text)
	}
	return f.EditEntry(p.list, p.name, func(c *Config) error {
		return assign(c.entry(p.list, p.name), p.steps, &value, raw)
	})
}

// Unset removes the property. To remove an entry or a list that does not exist is no
// error.
func (f Files) Unset(p Property) error {
	if p.list == "" {
		if p.steps[0] == "current-context" {
			return f.SetCurrentContext("")
		}
		return f.edit(func(*Config) bool { return false }, func(c *Config) error {
			return assign(reflect.ValueOf(c).Elem(), p.steps, nil, false)
		})
	}
	merged, err := f.Load()
	if err != nil {
		return err
	}
	if p.name == "" {
		return f.removeAll(p.list, merged)
	}
	if !merged.Has(p.list, p.name) {
		if len(p.steps) == 0 {
			return nil
		}
		return fmt.Errorf("current map key `%s` is invalid: there is no such entry in %s", p.name, p.list)
	}
	return f.EditEntry(p.list, p.name, func(c *Config) error {
		if len(p.steps) == 0 {
			c.Remove(p.list, p.name)
			return nil
		}
		return assign(c.entry(p.list, p.name), p.steps, nil, false)
	})
}

// removeAll removes every entry of a list from the file that holds it.
func (f Files) removeAll(list List, merged *Config) error {
	for _, name := range merged.Names(list) {
		err := f.EditEntry(list, name, func(c *Config) error { c.Remove(list, name); return nil })
		if err != nil {
			return err
		}
	}
	return nil
}

// entry returns the value of an entry, which it adds if there is none.
func (c *Config) entry(list List, name string) reflect.Value {
	switch list {
	case Clusters:
		return entry(&c.Clusters, name)
	case Users:
		return entry(&c.Users, name)
	}
	return entry(&c.Contexts, name)
}

func entry[T Cluster | User | Context](list *[]Named[T], name string) reflect.Value {
	if find(*list, name) == nil {
		*list = append(*list, Named[T]{Name: name})
	}
	return reflect.ValueOf(find(*list, name)).Elem()
}

// assign sets the value at the end of steps, which checkSteps has checked; nil unsets
// it.
func assign(v reflect.Value, steps []string, value *string, raw bool) error {
	if len(steps) == 0 {
		return assignLeaf(v, value, raw)
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			if value == nil {
				return nil
			}
			v.Set(reflect.New(v.Type().Elem()))
		}
		return assign(v.Elem(), steps, value, raw)
	case reflect.Struct:
		return assign(v.Field(fieldIndex(v.Type(), steps[0])), steps[1:], value, raw)
	}
	key := reflect.ValueOf(strings.Join(steps, ".")) // a map
	item := reflect.New(v.Type().Elem()).Elem()
	if value == nil {
		if !v.IsNil() {
			v.SetMapIndex(key, reflect.Value{})
		}
		return nil
	}
	if err := assignLeaf(item, value, raw); err != nil {
		return err
	}
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	v.SetMapIndex(key, item)
	return nil
}

func assignLeaf(v reflect.Value, value *string, raw bool) error {
	switch {
	case value == nil:
		v.SetZero()
	case v.Kind() == reflect.String:
		v.SetString(*value)
	case v.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(*value)
		if err != nil {
			return fmt.Errorf("%q is not true or false", *value)
		}
		v.SetBool(b)
	case v.Type() == reflect.TypeFor[[]byte]():
		data := []byte(*value)
		if !raw {
			var err error
			if data, err = base64.StdEncoding.DecodeString(*value); err != nil {
				return fmt.Errorf("error decoding input value: %w", err)
			}
		}
		v.SetBytes(slices.Clip(data))
	default:
		return fmt.Errorf("can't set a %s to a value", v.Kind())
	}
	return nil
}
