//! Values in columns of text: JSON, but a bare word for what JSON would put in quotes.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The text of a value.
pub fn of<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value).expect("records are made of what JSON has") {
        Value::String(word) => word,
        other => other.to_string(),
    }
}

/// The way back.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    serde_json::from_str(text)
        .or_else(|error| serde_json::from_value(Value::String(text.into())).map_err(|_| error))
}
