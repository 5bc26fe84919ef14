// Package jsonpath is the template language of -o jsonpath=…: text with
// expressions in braces over a JSON value.
// https://kubernetes.io/docs/reference/kubectl/jsonpath/
package jsonpath
