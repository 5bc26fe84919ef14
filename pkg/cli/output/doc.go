// Package output prints objects in the formats of -o, and tables.
package output
