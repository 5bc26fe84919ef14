// Package metadata reads, watches, patches and deletes objects of any served kind by
// their metadata only, for controllers that treat all kinds alike.
package metadata
