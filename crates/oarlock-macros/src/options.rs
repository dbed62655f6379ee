//! What is written in the parentheses of an attribute.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprLit, Ident, Lit, LitStr, Result, Token};

/// `key = value`, each key once.
pub(crate) struct Options(Vec<(Ident, Expr)>);

struct Pair(Ident, Expr);

impl Parse for Pair {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let key = input.call(Ident::parse_any)?;
        if !input.peek(Token![=]) {
            return Err(Error::new(key.span(), format!("`{key}` needs a value: `{key} = …`")));
        }
        input.parse::<Token![=]>()?;
        Ok(Self(key, input.parse()?))
    }
}

impl Options {
    /// # Errors
    /// Pointing at a key that is not among the known ones, or is there twice.
    pub(crate) fn parse(tokens: TokenStream, known: &[&str]) -> Result<Self> {
        let pairs = Punctuated::<Pair, Token![,]>::parse_terminated.parse2(tokens)?;
        let mut options: Vec<(Ident, Expr)> = Vec::new();
        for Pair(key, value) in pairs {
            if !known.iter().any(|known| key == known) {
                let all = known.join("`, `");
                return Err(Error::new(key.span(), format!("no option is called `{key}`; there are `{all}`")));
            }
            if options.iter().any(|(before, _)| *before == key) {
                return Err(Error::new(key.span(), format!("`{key}` is there twice")));
            }
            options.push((key, value));
        }
        Ok(Self(options))
    }

    fn get(&self, key: &str) -> Option<&Expr> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// What is written there, as it is.
    pub(crate) fn plain(&self, key: &str) -> Option<TokenStream> {
        self.get(key).map(|value| quote!(#value))
    }

    /// A name that the function gives something.
    pub(crate) fn ident(&self, key: &str) -> Result<Option<Ident>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let ident = syn::parse2(quote!(#value));
        ident.map(Some).map_err(|_| Error::new(value.span(), format!("`{key}` is a name, such as `{key} = lease`")))
    }

    /// A time: a text that says it, or an expression that is one.
    pub(crate) fn time(&self, key: &str) -> Result<Option<TokenStream>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match text(value) {
            None if matches!(value, Expr::Lit(_)) => {
                Err(Error::new(value.span(), format!("`{key}` is a time: write one such as \"1m 30s\"")))
            }
            None => Ok(Some(quote!(#value))),
            Some(text) => {
                let time = humantime::parse_duration(&text.value()).map_err(|wrong| {
                    Error::new(text.span(), format!("no time: {wrong}; write one such as \"1m 30s\""))
                })?;
                let (seconds, nanos) = (time.as_secs(), time.subsec_nanos());
                Ok(Some(quote_spanned!(text.span()=> ::core::time::Duration::new(#seconds, #nanos))))
            }
        }
    }

    /// A text with arguments of the function, and fields of these, in braces.
    pub(crate) fn text(&self, key: &str, arguments: &[Ident], function: &Ident) -> Result<Option<TokenStream>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let text = text(value).ok_or_else(|| Error::new(value.span(), format!("`{key}` is a text in quotes")))?;
        let Template { format, arguments: used, fields } = Template::of(text)?;
        for argument in used {
            if !arguments.iter().any(|known| *known == argument) {
                let wrong = format!("`{{{argument}}}` is no argument of `{function}`");
                return Err(Error::new(text.span(), wrong));
            }
        }
        Ok(Some(quote_spanned!(text.span()=> ::std::format!(#format, #(#fields),*))))
    }

    /// Refuses what is written there, if this says what is wrong with it.
    pub(crate) fn refuse(&self, key: &str, wrong: impl Fn(&str) -> Option<&'static str>) -> Result<()> {
        let Some(text) = self.get(key).and_then(text) else { return Ok(()) };
        wrong(&text.value()).map_or(Ok(()), |wrong| Err(Error::new(text.span(), wrong)))
    }

    /// The same for one that has to be there.
    pub(crate) fn required_text(&self, key: &str, arguments: &[Ident], function: &Ident) -> Result<TokenStream> {
        let missing = || Error::new(Span::call_site(), format!("the `{key}` of the lock is missing: `{key} = \"…\"`"));
        self.text(key, arguments, function)?.ok_or_else(missing)
    }
}

fn text(value: &Expr) -> Option<&LitStr> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text),
        _ => None,
    }
}

/// A text with something in braces.
struct Template {
    /// As `format!` takes it: an argument by its name, and a field by its place.
    format: LitStr,
    /// The arguments that are named, also those of fields.
    arguments: Vec<String>,
    fields: Vec<Expr>,
}

impl Template {
    fn of(text: &LitStr) -> Result<Self> {
        let wrong = |why: String| Error::new(text.span(), why);
        let value = text.value();
        let (mut format, mut arguments, mut fields) = (String::new(), Vec::new(), Vec::new());
        let mut rest = value.as_str();
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            format.push_str(before);
            if from.starts_with("{{") || from.starts_with("}}") {
                format.push_str(&from[..2]);
                rest = &from[2..];
                continue;
            }
            let inside = from.strip_prefix('{');
            let inside = inside.ok_or_else(|| wrong("a `}` without a `{`; write `}}` for one".to_owned()))?;
            let (inside, after) =
                inside.split_once('}').ok_or_else(|| wrong("a `{` without a `}`; write `{{` for one".to_owned()))?;
            let named = inside.split(':').next().unwrap_or_default();
            if named.trim().is_empty() {
                return Err(wrong("`{}` names no argument: write its name into the braces".to_owned()));
            }
            let place = match named.split_once('.') {
                None => named,
                Some(_) => {
                    let field = LitStr::new(named, text.span()).parse().ok().filter(is_field);
                    fields.push(field.ok_or_else(|| wrong(format!("`{{{named}}}` is no field of an argument")))?);
                    ""
                }
            };
            format.push_str(&format!("{{{place}{}}}", &inside[named.len()..]));
            arguments.push(named.split('.').next().unwrap_or_default().trim().to_owned());
            rest = after;
        }
        format.push_str(rest);
        Ok(Self { format: LitStr::new(&format, text.span()), arguments, fields })
    }
}

/// Is it a name, or a field of what is?
fn is_field(named: &Expr) -> bool {
    match named {
        Expr::Field(field) => is_field(&field.base),
        Expr::Path(name) => name.path.get_ident().is_some(),
        _ => false,
    }
}
