//! What a function becomes.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, FnArg, GenericArgument, Ident, ItemFn, Pat, PathArguments, Result, ReturnType, Type, parse_quote};

use crate::options::Options;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Locked,
    Once,
}

impl Kind {
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Locked => &["name", "locks", "wait", "lease", "max_hold", "fair", "with"],
            Self::Once => &["name", "slot", "locks", "at_least", "at_most", "keep_on_failure", "lease", "with"],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Locked => "locked",
            Self::Once => "once",
        }
    }
}

/// The function, or beside it as it is written, so that nothing else seems wrong, what is wrong with it.
pub(crate) fn expand(kind: Kind, options: TokenStream, item: TokenStream) -> TokenStream {
    let Ok(mut function) = syn::parse2::<ItemFn>(item.clone()) else {
        let wrong = format!("#[oarlock::{}] goes before a function", kind.name());
        let wrong = Error::new(Span::call_site(), wrong).into_compile_error();
        return quote!(#item #wrong);
    };
    match rewrite(kind, options, &mut function) {
        Ok(()) => function.into_token_stream(),
        Err(wrong) => {
            let wrong = wrong.into_compile_error();
            quote!(#[allow(unused)] #item #wrong)
        }
    }
}

fn rewrite(kind: Kind, options: TokenStream, function: &mut ItemFn) -> Result<()> {
    let options = Options::parse(options, kind.options())?;
    let (arguments, called) = (arguments(function), function.sig.ident.clone());
    if let Some(constant) = &function.sig.constness {
        return Err(Error::new(constant.span, "a `const fn` cannot wait for a lock"));
    }
    let name = options.required_text("name", &arguments, &called)?;
    options.refuse("name", |name| name.is_empty().then_some("the name of a lock cannot be empty"))?;
    options.refuse("slot", wrong_slot)?;
    if kind == Kind::Once && options.plain("slot").or_else(|| options.plain("at_least")).is_none() {
        let wrong = "for how long is it done? add `slot = \"…\"`, for what time it runs, or `at_least = \"…\"`, how long \
                     apart two runs are";
        return Err(Error::new(Span::call_site(), wrong));
    }
    let argument = || arguments.iter().find(|argument| *argument == "locks").map(ToTokens::to_token_stream);
    let locks = match options.plain("locks").or_else(argument) {
        Some(locks) => locks,
        None => {
            let wrong = format!("`{called}` has no argument `locks`: add it, or say where they are, by `locks = …`");
            return Err(Error::new(called.span(), wrong));
        }
    };
    let mut result = result(function)?.clone();
    let body = &function.block;
    let lease = options.ident("with")?.unwrap_or_else(|| Ident::new("_lease", Span::mixed_site()));
    let is_async = function.sig.asyncness.is_some().then(|| quote!(async));
    let wait = function.sig.asyncness.is_some().then(|| quote!(.await));
    let section = quote!(#is_async |#lease: ::oarlock::Lease| -> #result #body);
    let mut chosen = TokenStream::new();
    for time in ["wait", "lease", "max_hold", "at_least", "at_most"] {
        if let Some(value) = options.time(time)? {
            let setter = Ident::new(time, Span::call_site());
            chosen.extend(quote!(.#setter(#value)));
        }
    }
    for other in ["fair", "keep_on_failure"] {
        if let Some(value) = options.plain(other) {
            let setter = Ident::new(other, Span::call_site());
            chosen.extend(quote!(.#setter(#value)));
        }
    }
    if let Some(slot) = options.text("slot", &arguments, &called)? {
        chosen.extend(quote!(.slot(#slot)));
    }
    // Names that nothing in the function can mean.
    let (handle, all) = (Ident::new("handle", Span::mixed_site()), Ident::new("all", Span::mixed_site()));
    // Said to be of this type, so that what is said of another is short.
    let api = if is_async.is_some() { quote!(::oarlock::Locks) } else { quote!(::oarlock::blocking::Locks) };
    let locks = quote_spanned!(locks.span()=> let #all: &#api = &(#locks););
    let failed =
        quote!(::core::result::Result::Err(error) => ::core::result::Result::Err(::core::convert::From::from(error)));
    let block = match kind {
        Kind::Locked => quote! {{
            let #handle = { #locks #all.mutex(#name)#chosen };
            match #handle.run(#section)#wait {
                ::core::result::Result::Ok(result) => result,
                #failed,
            }
        }},
        Kind::Once => {
            succeed_with_run(&mut result)?;
            quote! {{
                let #handle = { #locks #all.once(#name)#chosen };
                match #handle.try_run(#section)#wait {
                    ::core::result::Result::Ok(::oarlock::OnceRun::Ran(result)) => result.map(::oarlock::OnceRun::Ran),
                    ::core::result::Result::Ok(::oarlock::OnceRun::Skipped(skipped)) => {
                        ::core::result::Result::Ok(::oarlock::OnceRun::Skipped(skipped))
                    }
                    #failed,
                }
            }}
        }
    };
    function.sig.output = parse_quote!(-> #result);
    *function.block = syn::parse2(block)?;
    Ok(())
}

/// What the library would say of such a slot, only later.
fn wrong_slot(slot: &str) -> Option<&'static str> {
    match slot {
        "" => Some("a slot cannot be empty: the job would run once for all time"),
        slot if slot.contains('@') => Some("a slot cannot have an @ in it: that stands between the name and the slot"),
        _ => None,
    }
}

/// What the function calls its arguments.
fn arguments(function: &ItemFn) -> Vec<Ident> {
    let named = function.sig.inputs.iter().filter_map(|argument| match argument {
        FnArg::Typed(argument) => match &*argument.pat {
            Pat::Ident(name) => Some(name.ident.clone()),
            _ => None,
        },
        FnArg::Receiver(receiver) => Some(Ident::from(receiver.self_token)),
    });
    named.collect()
}

/// What it returns, which has to look like a `Result`.
fn result(function: &ItemFn) -> Result<&Type> {
    let called = &function.sig.ident;
    let wrong = || {
        format!(
            "`{called}` has to return a `Result`, whose error is made from `oarlock::Error`: the lock may not be had"
        )
    };
    match &function.sig.output {
        ReturnType::Type(_, result) if success(result).is_some() => Ok(result),
        ReturnType::Type(_, other) => Err(Error::new_spanned(other, wrong())),
        ReturnType::Default => Err(Error::new(called.span(), wrong())),
    }
}

/// The `T` of `Result<T, …>`.
fn success(result: &Type) -> Option<&Type> {
    let Type::Path(path) = result else { return None };
    let last = path.path.segments.last()?;
    let PathArguments::AngleBracketed(types) = &last.arguments else { return None };
    match types.args.first() {
        Some(GenericArgument::Type(success)) if last.ident.to_string().ends_with("Result") => Some(success),
        _ => None,
    }
}

/// Has the `T` of `Result<T, …>` be an `OnceRun<T>`.
fn succeed_with_run(result: &mut Type) -> Result<()> {
    let whole = result.clone();
    let success = success(&whole).ok_or_else(|| Error::new_spanned(&whole, "not a `Result`"))?;
    if let Type::Path(path) = result
        && let Some(last) = path.path.segments.last_mut()
        && let PathArguments::AngleBracketed(types) = &mut last.arguments
        && let Some(first) = types.args.first_mut()
    {
        *first = GenericArgument::Type(parse_quote!(::oarlock::OnceRun<#success>));
    }
    Ok(())
}
