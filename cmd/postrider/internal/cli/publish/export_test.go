package publish

// What tests need of the package.
const MaxLine = maxLine

var DecodeMessage = decodeMessage
