package release

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"time"
)

// packed is a file of an archive.
type packed struct {
	name    string
	content []byte
	mode    int64
}

// extension is that of a target's archive.
func extension(t Target) string {
	if t.OS == "windows" {
		return ".zip"
	}
	return ".tar.gz"
}

// pack returns an archive: a zip for Windows, a compressed tar for others. It depends only on its files and the time.
func pack(t Target, files []packed, at time.Time) ([]byte, error) {
	if t.OS == "windows" {
		return packZip(files, at)
	}
	content, err := packTar(files, at)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	if _, err := compressed.Write(content); err != nil {
		return nil, err
	}
	err = compressed.Close()
	return out.Bytes(), err
}

func packTar(files []packed, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, f := range files {
		err := archive.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: at, Format: tar.FormatPAX})
		if err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return out.Bytes(), err
}

func packZip(files []packed, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	for _, f := range files {
		w, err := archive.CreateHeader(&zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at})
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return out.Bytes(), err
}
