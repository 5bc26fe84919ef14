// Package output prints objects in the forms that people ask for with -o, and
// tables of columns.
package output
