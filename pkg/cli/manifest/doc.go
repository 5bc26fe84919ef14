// Package manifest reads objects from YAML and JSON files.
package manifest
